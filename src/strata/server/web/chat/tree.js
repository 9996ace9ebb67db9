// A conversation as a tree: an edited question or another answer stands beside the old one, not in its place.
//
// Nodes are the stored messages: {id, chat, parent, role, content, ...}. `parent` is null for first questions. `picks`
// says which child is shown below each node ("" for the top); without a word it is the newest.

/** The nodes below each, oldest first; below "" the first questions. */
export function familiesOf(nodes) {
  const families = new Map();
  for (const node of [...nodes].sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1))) {
    const key = node.parent ?? "";
    if (!families.has(key)) families.set(key, []);
    families.get(key).push(node);
  }
  return families;
}

/** The nodes that are shown, from the first question on. */
export function pathOf(nodes, picks) {
  const families = familiesOf(nodes);
  const path = [];
  const seen = new Set(); // what was imported may be anything, also a ring
  for (let key = ""; ; key = path.at(-1).id) {
    const children = (families.get(key) ?? []).filter((node) => !seen.has(node.id));
    if (!children.length) return path;
    const node = children.find((child) => child.id === picks[key]) ?? children.at(-1);
    seen.add(node.id);
    path.push(node);
  }
}

/** Show this node among its siblings. */
export function pick(picks, node) {
  return { ...picks, [node.parent ?? ""]: node.id };
}

/** The first words of a question, as a chat's title. */
export function titleOf(text) {
  const line = text.trim().replace(/\s+/g, " ");
  if (line.length <= 60) return line || "New chat";
  const cut = line.slice(0, 60);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), 40))}…`;
}
