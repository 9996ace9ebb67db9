import { fill, h } from "../dom.js";

export function mount(element) {
  fill(element, h("div.page", {}, h("h1", {}, "Monitor"), h("p.quiet", {}, "This view is being built.")));
}
