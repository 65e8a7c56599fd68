import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// One script and one style sheet, which ship inside the Python package; names without a digest, so that a build of the
// same source is the same files.
export default defineConfig({
  plugins: [svelte()],
  publicDir: "public",
  build: {
    outDir: "../src/numerate/page/bundle",
    emptyOutDir: true,
    modulePreload: false,
    cssCodeSplit: false,
    target: "es2022",
    rollupOptions: {
      input: "src/main.ts",
      output: { entryFileNames: "app.js", assetFileNames: "app[extname]" },
    },
  },
});
