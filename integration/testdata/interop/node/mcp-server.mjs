// A server of the Model Context Protocol with one tool, over Streamable HTTP with sessions. It knows
// nothing of tokens. It prints its port.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

const sessions = new Map();

async function newSession() {
  const server = new McpServer({ name: "sums", version: "1.0.0" });
  let client = "";
  server.registerTool("add", { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }, extra) => {
    client = extra.requestInfo?.headers["x-snowgate-client"] ?? "";
    await extra.sendNotification({ method: "notifications/message", params: { level: "info", data: "adding" } });
    return { content: [{ type: "text", text: `${a + b} for ${client}` }] };
  });
  server.server.registerCapabilities({ logging: {} });
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, transport),
    onsessionclosed: (id) => sessions.delete(id),
  });
  await server.connect(transport);
  return transport;
}

const http = createServer(async (request, response) => {
  const known = sessions.get(request.headers["mcp-session-id"]);
  if (!known && request.method !== "POST") {
    response.writeHead(404).end();
    return;
  }
  await (known ?? (await newSession())).handleRequest(request, response);
});
http.listen(0, "127.0.0.1", () => console.log(http.address().port));
