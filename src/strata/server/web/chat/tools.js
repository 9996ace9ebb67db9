// Tools as a person types them: JSON in OpenAI's form, in Anthropic's, or bare functions.

export const EXAMPLE = JSON.stringify(
  [
    {
      name: "show_map",
      description: "Show the map.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
    {
      name: "set_timer",
      description: "Set the timer.",
      parameters: { type: "object", properties: { minutes: { type: "integer" } }, required: ["minutes"] },
    },
    {
      name: "send_mail",
      description: "Send the mail.",
      parameters: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
    },
  ],
  null,
  2,
);

/**
 * The tools of a text, as the server takes them.
 * @throws {Error} says what is wrong, for the person who typed it
 */
export function readTools(text) {
  if (!text.trim()) return [];
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON yet: ${error.message}`);
  }
  const list = Array.isArray(value) ? value : Array.isArray(value?.tools) ? value.tools : [value];
  const names = new Set();
  return list.map((one, place) => {
    const where = list.length > 1 ? `Tool ${place + 1}` : "The tool";
    if (one === null || typeof one !== "object" || Array.isArray(one))
      throw new Error(`${where} must be an object with a name.`);
    if (one.type === "custom") return checked(one, one.custom ?? one, names, where, () => one);
    const given = one.function ?? one;
    return checked(one, given, names, where, () => {
      const parameters = given.parameters ?? given.input_schema ?? { type: "object", properties: {} };
      if (parameters === null || typeof parameters !== "object" || Array.isArray(parameters))
        throw new Error(`${where}: parameters must be a JSON schema, an object.`);
      return {
        type: "function",
        function: { name: given.name, ...(given.description ? { description: given.description } : {}), parameters },
      };
    });
  });
}

function checked(one, given, names, where, made) {
  if (typeof given?.name !== "string" || !/^[\w.-]{1,64}$/.test(given.name)) {
    throw new Error(`${where} needs a name of letters, digits, dashes and underscores.`);
  }
  if (names.has(given.name)) throw new Error(`Two tools have the name ${given.name}.`);
  names.add(given.name);
  return made();
}
