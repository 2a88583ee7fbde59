// graphile-worker: create so many no-ops and drain them in this process. Arguments: DATABASE_URL COUNT.
// Set up as its page about performance has it: a local queue and completions in batches.
import { createRequire } from "node:module";
import { performance } from "node:perf_hooks";

const require = createRequire(`${process.cwd()}/package.json`);
const { Logger, makeWorkerUtils, run } = require("graphile-worker");

const [url, count] = [process.argv[2], Number(process.argv[3])];
const quiet = new Logger(() => () => {});
const preset = {
  worker: {
    connectionString: url,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: quiet,
  },
};
const utils = await makeWorkerUtils({ connectionString: url, logger: quiet });
await utils.migrate();

let began = performance.now();
for (let left = count; left > 0; left -= 1000) {
  await utils.addJobs(Array.from({ length: Math.min(left, 1000) }, () => ({ identifier: "noop", payload: {} })));
}
const created = (performance.now() - began) / 1000;
await utils.withPgClient((client) => client.query("ANALYZE"));

let done = 0;
let allRun;
const executed = new Promise((resolve) => (allRun = resolve));
began = performance.now();
const runner = await run({
  preset,
  noHandleSignals: true,
  taskList: {
    noop: async () => {
      if (++done === count) allRun();
    },
  },
});
await executed;
// Run is not done: it is when the database says so.
let left = 1;
while (left > 0) {
  const answer = await utils.withPgClient((client) =>
    client.query("SELECT count(*)::int AS n FROM graphile_worker.jobs"),
  );
  left = answer.rows[0].n;
}
const drained = (performance.now() - began) / 1000;
await runner.stop();
await utils.release();
console.log(JSON.stringify({ created, drained, done }));
process.exit(0);
