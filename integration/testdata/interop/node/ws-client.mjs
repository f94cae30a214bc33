// A WebSocket client of the package ws. It goes through what a client can do, with
// the server behind the URL that is its argument, and prints what it has seen.
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import WebSocket from "ws";

const url = process.argv[2];
const headers = { Authorization: `Bearer ${process.env.TOKEN}` };
const seen = {};

async function open(protocols, options) {
  const socket = new WebSocket(url, protocols, { headers, maxPayload: 64 << 20, ...options });
  await once(socket, "open");
  return socket;
}

async function echoed(socket, data, options) {
  socket.send(data, options);
  const [got, binary] = await once(socket, "message");
  return Buffer.compare(got, Buffer.from(data)) === 0 && binary === (typeof data !== "string");
}

const digest = (data) => createHash("sha256").update(data).digest("hex");

for (const compressed of [false, true]) {
  const socket = await open(["a", "b"], { perMessageDeflate: compressed && { threshold: 0 } });
  const results = [socket.protocol, socket.extensions.split(";")[0]];
  for (const size of [0, 1, 125, 126, 65535, 65536, 1 << 20]) {
    results.push(await echoed(socket, randomBytes(size)));
    results.push(await echoed(socket, "é".repeat(size / 2)));
  }
  const big = randomBytes(compressed ? 1 << 20 : 16 << 20);
  socket.send(big);
  const [got] = await once(socket, "message");
  results.push(digest(got) === digest(big));

  // A message in three fragments, with a ping between them.
  const pong = once(socket, "pong");
  socket.send("one ", { fin: false });
  socket.ping("between");
  socket.send("two ", { fin: false });
  socket.send("three", { fin: true });
  const [whole] = await once(socket, "message");
  results.push(whole.toString(), (await pong)[0].toString());

  socket.send("ping");
  results.push((await once(socket, "message"))[0].toString());
  socket.close(4321, "that was all");
  const [code, reason] = await once(socket, "close");
  results.push(`${code} ${reason}`);
  seen[compressed ? "compressed" : "plain"] = results;
}

seen.closes = [];
for (const text of ["close 1000 bye", "close 4999 reason", "close 1011 failure", "terminate"]) {
  const socket = await open([]);
  socket.send(text);
  const [code, reason] = await once(socket, "close");
  seen.closes.push(`${code} ${reason}`);
}

const refused = new WebSocket(url, [], {});
const [, answer] = await once(refused, "unexpected-response");
refused.on("error", () => {});
seen.refused = answer.statusCode;
answer.destroy();
console.log(JSON.stringify(seen));
process.exit(0);
