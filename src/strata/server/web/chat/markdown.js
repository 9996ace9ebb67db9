// A model's text to elements. The only place of the page where text becomes HTML, and that only through DOMPurify.
//
// HTML in the text is shown as text, pictures are shown as links (nothing is fetched for a text), and links lead to
// http, https and mail alone. What the sanitizer then sees is our own renderer's; it is the second wall, the policy of
// the page the third.

import { Marked } from "../vendor/marked.esm.js";
import DOMPurify from "../vendor/purify.es.mjs";
import { highlight, language, onGrammar } from "./highlight.js";

const HARMLESS = /^<(?:br\s*\/?|\/?(?:sub|sup|kbd))>$/i; // tags without attributes that models like
const GOOD_LINK = /^(?:https?:\/\/|mailto:)/i;
const ALLOWED = {
  ALLOWED_TAGS: [
    "a",
    "blockquote",
    "br",
    "button",
    "code",
    "del",
    "div",
    "em",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "kbd",
    "li",
    "ol",
    "p",
    "pre",
    "span",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
  ],
  ALLOWED_ATTR: [
    "aria-label",
    "class",
    "data-copy",
    "data-lang",
    "href",
    "rel",
    "role",
    "start",
    "tabindex",
    "target",
    "title",
    "type",
  ],
  ALLOWED_URI_REGEXP: GOOD_LINK,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
ALLOWED.ADD_URI_SAFE_ATTR = [
  "aria-label",
  "class",
  "data-copy",
  "data-lang",
  "rel",
  "role",
  "start",
  "tabindex",
  "target",
  "title",
  "type",
];

const escape = (text) =>
  text.replace(/[&<>"']/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[c]);

const marked = new Marked({ gfm: true, breaks: true });
marked.use({
  extensions: [
    mathOf("mathInline", "inline", /^(?:\\\([^\n]+?\\\)|\$(?![\s$])[^$\n]*[^\s$\\]\$(?!\d))/),
    mathOf("mathBlock", "inline", /^(?:\\\[[\s\S]+?\\\]|\$\$[\s\S]+?\$\$)/),
  ],
  renderer: {
    html({ text, block }) {
      if (HARMLESS.test(text.trim())) return text.trim().toLowerCase();
      return block ? `<p class="verbatim">${escape(text.trimEnd())}</p>` : escape(text);
    },
    heading({ tokens, depth }) {
      const level = Math.min(depth + 2, 6); // the view and the message have the levels above
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
    code({ text, lang }) {
      return codeBlock(text, (lang ?? "").trim().split(/\s+/)[0]);
    },
    link({ href, title, tokens }) {
      const inner = this.parser.parseInline(tokens);
      if (!GOOD_LINK.test(href)) return inner;
      return `<a href="${escape(href)}" target="_blank" rel="noopener noreferrer nofollow"${title ? ` title="${escape(title)}"` : ""}>${inner}</a>`;
    },
    image({ href, text }) {
      const words = `Picture: ${escape(text || href)}`;
      if (!GOOD_LINK.test(href)) return words;
      return `<a href="${escape(href)}" target="_blank" rel="noopener noreferrer nofollow">${words}</a>`;
    },
    checkbox({ checked }) {
      return `<span class="box${checked ? " checked" : ""}" role="img" aria-label="${checked ? "done" : "to do"}"></span>`;
    },
    table({ header, rows }) {
      const cells = (row, tag) =>
        `<tr>${row.map((cell) => `<${tag}${cell.align ? ` class="${cell.align}"` : ""}>${this.parser.parseInline(cell.tokens)}</${tag}>`).join("")}</tr>`;
      const body = rows.map((row) => cells(row, "td")).join("");
      return `<div class="table" tabindex="0" role="group" aria-label="Table"><table><thead>${cells(header, "th")}</thead><tbody>${body}</tbody></table></div>`;
    },
  },
});

/** Mathematics keeps its source, which Markdown would otherwise take for emphasis and escapes. */
function mathOf(name, level, rule) {
  return {
    name,
    level,
    start: (text) => text.search(/\\[([]|\$/),
    tokenizer(text) {
      const found = rule.exec(text);
      return found ? { type: name, raw: found[0] } : undefined;
    },
    renderer: ({ raw }) => `<code class="math">${escape(raw)}</code>`,
  };
}

/** A block of code with its language and a button that copies it. */
function codeBlock(text, word) {
  const name = language(word);
  const lit = highlight(text, name);
  return (
    `<div class="code" role="group" aria-label="Code${word ? `, ${escape(word)}` : ""}"><div class="code-head"><span class="code-lang">${escape(word) || "text"}</span>` +
    '<button type="button" class="code-copy" data-copy="code">Copy</button></div>' +
    `<pre tabindex="0"><code${name ? ` data-lang="${name}"` : ""}${lit === null ? "" : ' class="lit"'}>${lit ?? escape(text)}</code></pre></div>`
  );
}

function clean(html) {
  return DOMPurify.sanitize(html, ALLOWED);
}

/** Blocks of a text, as marked reads them; the pieces of source they come from add up to `text`. */
export function blocks(text) {
  try {
    return marked.lexer(text);
  } catch {
    return [{ type: "unread", raw: text }]; // nested more deeply than can be followed
  }
}

/** The elements of blocks that `blocks` gave. */
export function nodesOf(tokens) {
  try {
    if (tokens.every(({ type }) => type !== "unread")) {
      return [...clean(marked.parser(tokens)).childNodes].filter(
        (node) => node.nodeType === Node.ELEMENT_NODE || node.data.trim(),
      );
    }
  } catch {
    // as above
  }
  return [verbatim(tokens.map(({ raw }) => raw).join(""))];
}

/** A text as it stands. */
export function verbatim(text) {
  const element = document.createElement("p");
  element.className = "verbatim";
  element.textContent = text;
  return element;
}

/** A whole text. */
export function render(text) {
  return nodesOf(blocks(text));
}

/** Code alone, for tool calls; the same block as in a text. */
export function renderCode(text, word) {
  return [...clean(codeBlock(text, word)).childNodes];
}

onGrammar((name) => {
  for (const code of document.querySelectorAll(`code[data-lang="${name}"]:not(.lit)`)) {
    const lit = highlight(code.textContent, name);
    if (lit === null) continue;
    code.replaceChildren(clean(lit));
    code.classList.add("lit");
  }
});
