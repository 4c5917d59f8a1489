// Builds the two pages with esbuild into the Python packages that contain them. The built files are committed, so that
// users of shardplan do not need node. With `--check` nothing is written, and the script fails where a committed file
// differs from the built one.

import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = new URL(".", import.meta.url);
const PAGES = {
  report: "../planner/export/report/page/report",
  service: "../api/web/service",
};
const INPUTS = ["report", "service", "build.mjs", "package-lock.json"];
const LIBRARIES = ["@dagrejs/dagre", "@dagrejs/graphlib"];

/** Returns the SHA-256 over the name and the text of every source, in the order of their names. */
async function digest() {
  const sum = createHash("sha256");
  for (const path of await files()) sum.update(`${path}\n`).update(await readFile(new URL(path, HERE)));
  return sum.digest("hex");
}

async function files() {
  const inside = async (name) => {
    if (name.includes(".")) return [name];
    return (await readdir(new URL(name, HERE))).map((part) => `${name}/${part}`);
  };
  return (await Promise.all(INPUTS.map(inside))).flat().sort();
}

/** Returns the first comment of a built script: the digest of its sources, and the licences of its libraries. */
async function banner() {
  const licences = LIBRARIES.map(async (name) => {
    const folder = new URL(`node_modules/${name}/`, HERE);
    const { version } = JSON.parse(await readFile(new URL("package.json", folder), "utf8"));
    return `${name} ${version}\n\n${(await readFile(new URL("LICENSE", folder), "utf8")).trim()}`;
  });
  const words = [
    `Built by "make pages" from web/, sources ${await digest()}. It contains:`,
    ...(await Promise.all(licences)),
  ];
  return `/*!\n${words.join("\n\n")}\n*/`;
}

/** Builds everything, and returns [path, text] of every file. */
async function built() {
  const settings = { bundle: true, minify: true, write: false, charset: "utf8", target: "es2022", outdir: "out" };
  const js = { js: await banner() };
  const all = Object.entries(PAGES).map(async ([name, target]) => {
    const entryPoints = [`${name}/main.js`, `${name}/main.css`].map((path) => fileURLToPath(new URL(path, HERE)));
    const { outputFiles } = await build({ ...settings, format: "esm", legalComments: "none", banner: js, entryPoints });
    return outputFiles.map((file) => [new URL(target + file.path.match(/\.\w+$/)[0], HERE), file.text]);
  });
  return (await Promise.all(all)).flat();
}

const isCheck = process.argv.includes("--check");
for (const [path, text] of await built()) {
  if (!isCheck) await writeFile(path, text);
  else if ((await readFile(path, "utf8").catch(() => "")) !== text) {
    console.error(`${fileURLToPath(path)} differs from what its sources give: run "make pages" and commit it`);
    process.exitCode = 1;
  }
}
