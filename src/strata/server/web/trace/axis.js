// Time on the screen: long stretches in which the engine had nothing to do are cut short, all else is to scale.

/** Microseconds without work that are drawn to scale. */
const SHORT = 2000;

export class Axis {
  /** @param {import("./model.js").Window[]} windows */
  constructor(windows) {
    this.pieces = [];  // {t, to, d, idle}: time and its place, one after another
    this.total = 0;
    let end = windows.length ? windows[0].from : 0;
    const busy = windows.reduce((sum, one) => sum + one.end - one.from, 0);
    const cut = Math.max(SHORT, busy / 60);
    for (const one of windows) {
      if (one.from > end) this.#add(end, one.from, one.from - end > cut ? cut : one.from - end, one.from - end > cut);
      if (one.end > end) this.#add(Math.max(end, one.from), one.end, one.end - Math.max(end, one.from), false);
      end = Math.max(end, one.end);
    }
    if (!this.total) this.total = 1;
  }

  #add(t, to, length, idle) {
    const last = this.pieces.at(-1);
    if (last && !idle && !last.idle && last.to === t) {
      last.to = to;
      last.length += length;
    } else {
      this.pieces.push({ t, to, d: this.total, length, idle });
    }
    this.total += length;
  }

  /** Where a time is, in microseconds without what is cut. */
  place(t) {
    let low = 0;
    let high = this.pieces.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.pieces[middle].t <= t) low = middle;
      else high = middle - 1;
    }
    const piece = this.pieces[low];
    if (!piece) return 0;
    return piece.d + piece.length * Math.min(1, Math.max(0, (t - piece.t) / (piece.to - piece.t || 1)));
  }

  /** The time at a place. */
  time(place) {
    const piece = this.pieces.findLast((one) => one.d <= place) ?? this.pieces[0];
    return piece ? piece.t + ((place - piece.d) / (piece.length || 1)) * (piece.to - piece.t) : 0;
  }

  /** Stretches that are cut. */
  get idle() {
    return this.pieces.filter((one) => one.idle);
  }
}
