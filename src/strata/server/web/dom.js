// Making elements. Text becomes text: nothing here takes HTML.

/**
 * An element.
 * @param {string} tag  name, with classes behind dots: "button.button.main"
 * @param {object} [props]  attributes; `on` is an object of listeners, `data` of data attributes, `style` of CSS
 *   properties (set one by one, which the policy allows); a property whose value is null, undefined or false is left out
 * @param {...(Node|string|number|null|undefined|false|Array)} children
 */
export function h(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (key === "data") Object.assign(element.dataset, value);
    else if (key === "style")
      for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    else if (key === "class") element.classList.add(...String(value).split(" ").filter(Boolean));
    else if (key === "value" || key === "checked" || key === "selected" || key === "indeterminate")
      element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

/** The same in SVG's name space. */
export function s(tag, props = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else element.setAttribute(key, String(value));
  }
  element.append(...nodes(children));
  return element;
}

/** A picture of icons.svg; it says nothing, the button around it does. */
export function icon(name) {
  return s(
    "svg",
    { class: "icon", "aria-hidden": "true", focusable: "false", viewBox: "0 0 24 24" },
    s("use", { href: `static/icons.svg#${name}` }),
  );
}

/** A button that is only a picture; `label` is its name for everybody. */
export function iconButton(name, label, listener, props = {}) {
  return h(
    "button.icon-button",
    { type: "button", "aria-label": label, title: label, on: { click: listener }, ...props },
    icon(name),
  );
}

/** Put other children into an element. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

let last = 0;

/** A name for an element that another one points to. */
export function uid(prefix = "e") {
  last += 1;
  return `${prefix}-${last}`;
}
