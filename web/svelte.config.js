export default {
  compilerOptions: {
    runes: true,
    // Styles go to a file: the content security policy allows no inline ones.
    css: "external",
  },
};
