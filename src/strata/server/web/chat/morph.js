// Make nodes like others while keeping those that are right already: selections, focus and scroll positions survive.

/**
 * Change the children of `parent` from number `first` on into `wanted`.
 * @param {Node} parent
 * @param {Node[]} wanted  used up
 * @param {number} first
 */
export function morphChildren(parent, wanted, first = 0) {
  const old = [...parent.childNodes].slice(first);
  wanted.forEach((node, place) => {
    if (place >= old.length) parent.append(node);
    else morph(old[place], node);
  });
  for (const node of old.slice(wanted.length)) node.remove();
}

function morph(old, wanted) {
  if (old.nodeType !== wanted.nodeType || old.nodeName !== wanted.nodeName) {
    old.replaceWith(wanted);
  } else if (old.nodeType === Node.TEXT_NODE) {
    if (wanted.data === old.data) return;
    if (wanted.data.startsWith(old.data)) old.appendData(wanted.data.slice(old.data.length));
    else old.data = wanted.data;
  } else if (old.nodeType === Node.ELEMENT_NODE) {
    for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of wanted.attributes)
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    morphChildren(old, [...wanted.childNodes]);
  }
}
