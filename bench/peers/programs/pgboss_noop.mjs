// pg-boss: create so many no-ops and drain them in this process. Arguments: DATABASE_URL COUNT.
// Its workers pause for half a second at least between two fetches, so fetch and complete are called directly.
import { createRequire } from "node:module";
import { performance } from "node:perf_hooks";

const require = createRequire(`${process.cwd()}/package.json`);
const loaded = require("pg-boss");
const PgBoss = loaded.PgBoss ?? loaded.default ?? loaded;

const [url, count] = [process.argv[2], Number(process.argv[3])];
const BATCH = 500;
const AT_ONCE = 4;
const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false });
boss.on("error", (error) => {
  throw error;
});
await boss.start();
await boss.createQueue("noop");

let began = performance.now();
for (let left = count; left > 0; left -= 1000) {
  await boss.insert(Array.from({ length: Math.min(left, 1000) }, () => ({ name: "noop", data: {} })));
}
const created = (performance.now() - began) / 1000;

let done = 0;
began = performance.now();
async function work() {
  for (;;) {
    const jobs = await boss.fetch("noop", { batchSize: BATCH });
    if (!jobs || jobs.length === 0) return;
    await boss.complete("noop", jobs.map((job) => job.id));
    done += jobs.length;
  }
}
await Promise.all(Array.from({ length: AT_ONCE }, work));
const drained = (performance.now() - began) / 1000;
await boss.stop({ graceful: false, wait: false });
console.log(JSON.stringify({ created, drained, done }));
process.exit(0);
