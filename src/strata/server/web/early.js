// Runs before the first paint, so that a chosen theme is there from the beginning. Everything else is a module.
try {
  const theme = localStorage.getItem("strata.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // no storage: the system's theme it is
}
