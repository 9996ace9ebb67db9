// What a chat is asked with. Absent values are the server's own.

export const EFFORTS = [
  ["", "Default"],
  ["none", "Off"],
  ["low", "Low"],
  ["medium", "Medium"],
  ["high", "High"],
  ["max", "Max"],
];

/** Fields of the panel: name in the request, words, and what is allowed. */
export const NUMBERS = [
  { name: "temperature", label: "Temperature", hint: "0 always takes the likeliest word", min: 0, max: 10, step: 0.05 },
  { name: "top_p", label: "Top p", hint: "only words that together have this share", min: 0, max: 1, step: 0.01 },
  { name: "top_k", label: "Top k", hint: "only so many of the likeliest; 0 is all", min: 0, max: 1_000_000, step: 1, whole: true },
  { name: "min_p", label: "Min p", hint: "only words this near to the likeliest", min: 0, max: 1, step: 0.01 },
  {
    name: "max_tokens",
    label: "Longest answer",
    hint: "tokens, thinking included",
    min: 1,
    max: 10_000_000,
    step: 1,
    whole: true,
  },
  {
    name: "thinking_budget",
    label: "Thinking budget",
    hint: "tokens; then the answer begins",
    min: 0,
    max: 10_000_000,
    step: 1,
    whole: true,
  },
  {
    name: "seed",
    label: "Seed",
    hint: "the same seed, the same answer",
    min: -2147483648,
    max: 4_294_967_295,
    step: 1,
    whole: true,
  },
];

export const EMPTY = { model: "", system: "", effort: "", tools: "", toolsOn: true, numbers: {} };

/** What of a stored or imported object is settings. */
export function settingsFrom(value) {
  const given = value && typeof value === "object" ? value : {};
  const numbers = {};
  for (const { name, min, max, whole } of NUMBERS) {
    const number = given.numbers?.[name];
    if (typeof number === "number" && number >= min && number <= max && (!whole || Number.isInteger(number)))
      numbers[name] = number;
  }
  return {
    model: typeof given.model === "string" ? given.model.slice(0, 200) : "",
    system: typeof given.system === "string" ? given.system : "",
    effort: EFFORTS.some(([name]) => name === given.effort) ? given.effort : "",
    tools: typeof given.tools === "string" ? given.tools : "",
    toolsOn: given.toolsOn !== false,
    numbers,
  };
}

/** How many of them are other than the server's own. */
export function changed(settings) {
  return Object.keys(settings.numbers).length + (settings.system.trim() ? 1 : 0);
}
