// Numbers for people. What is not known is a dash, never a zero.

export const NONE = "–";

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const known = (value) => typeof value === "number" && Number.isFinite(value);

/** 1,234,567 */
export function count(value) {
  return known(value) ? WHOLE.format(value) : NONE;
}

/** Three digits: 0.43, 4.32, 43.2, 432, 4,320. */
export function three(value) {
  if (!known(value)) return NONE;
  const size = Math.abs(value);
  return size >= 99.95 ? WHOLE.format(value) : value.toFixed(size >= 9.995 ? 1 : size === 0 ? 0 : 2);
}

/** A number of a scale: no digits that say nothing. */
export function round(value) {
  return known(value) ? Number(value.toPrecision(3)).toLocaleString("en-US") : NONE;
}

/** 1.07 GB; 1 GB is 10**9 bytes, as everywhere in Strata. */
export function bytes(value) {
  if (!known(value)) return NONE;
  for (const [unit, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= unit) {
      const shown = value / unit;
      return `${shown.toFixed(shown < 9.995 ? 2 : shown < 99.95 ? 1 : 0)} ${name}`;
    }
  }
  return `${value} B`;
}

/** 320 µs, 4.2 ms, 0.31 s, 12.4 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function seconds(value) {
  if (!known(value)) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.0009995) return `${three(value * 1e6)} µs`;
  if (value < 0.0995) return `${three(value * 1e3)} ms`;
  if (value < 59.95) return `${value.toFixed(value < 9.995 ? 2 : 1)} s`;
  const whole = Math.round(value);
  for (const [large, small, names] of [[86400, 3600, "d h"], [3600, 60, "h min"], [60, 1, "min s"]]) {
    if (whole < large) continue;
    const [first, second] = names.split(" ");
    const rest = Math.floor((whole % large) / small);
    return `${Math.floor(whole / large)} ${first}${rest ? ` ${rest} ${second}` : ""}`;
  }
  return `${whole} s`;
}

/** The same for what people wait for: less than a millisecond is as good as nothing. */
export function brief(value) {
  return known(value) && value < 0.0005 ? "0 ms" : seconds(value);
}

/** The same in whole seconds. */
export function uptime(value) {
  return known(value) && value < 60 ? `${Math.floor(value)} s` : seconds(value);
}

/** How long ago, without false precision: now, 12 s, 3 min, 2 h, 5 d. */
export function ago(value) {
  if (!known(value)) return NONE;
  if (value < 1) return "now";
  for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (value >= unit) return `${Math.floor(value / unit)} ${name}`;
  return `${Math.floor(value)} s`;
}

/** A share of a whole as a percentage; a dash where there is no whole. */
export function share(part, whole) {
  if (!known(part) || !known(whole) || whole <= 0) return NONE;
  const value = (100 * part) / whole;
  if (part > 0 && value < 0.1) return "<0.1%";
  return `${value.toFixed(value > 0 && value < 9.95 ? 1 : 0)}%`;
}

/** 14:03:27, of seconds since 1970. */
export function clock(time) {
  return known(time) ? new Date(time * 1000).toLocaleTimeString("en-GB") : NONE;
}

/** "1 request", "2 requests". */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}
