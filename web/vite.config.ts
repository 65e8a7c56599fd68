import { svelte } from "@sveltejs/vite-plugin-svelte";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

// The digest of what was built, beside the build: a test finds a build that is not of this source.
function sourceDigest(): Plugin {
  return {
    name: "source-digest",
    generateBundle() {
      const files = [...readdirSync("src").sort().map((name) => `src/${name}`), "package-lock.json"];
      const digest = createHash("sha256");
      for (const file of files) digest.update(`${file}\0`).update(readFileSync(file));
      this.emitFile({ type: "asset", fileName: "source.sha256", source: `${digest.digest("hex")}\n` });
    },
  };
}

// One script and one style sheet, which ship inside the Python package; names without a digest, so that a build of the
// same source is the same files.
export default defineConfig({
  plugins: [svelte(), sourceDigest()],
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
