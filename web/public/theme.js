// Runs before the first paint, so that neither colours nor direction change under the reader's eyes.
(() => {
  const root = document.documentElement;
  const read = (name) => {
    try {
      return localStorage.getItem(`chatsrv.${name}`);
    } catch {
      return null;
    }
  };
  const theme = read("theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  const known = ["en", "ar"];
  const wanted = [read("language"), ...navigator.languages.map((name) => name.split("-")[0])];
  root.lang = wanted.find((name) => known.includes(name)) ?? "en";
  root.dir = root.lang === "ar" ? "rtl" : "ltr";
})();
