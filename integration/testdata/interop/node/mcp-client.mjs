// Asks a server of the Model Context Protocol to add two numbers. All it knows is the URL, whom its
// credentials are for, and the credentials. It prints what it got as JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { ClientCredentialsProvider } from "@modelcontextprotocol/sdk/client/auth-extensions.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, expectedIssuer] = process.argv.slice(2);
const { CLIENT_ID: clientId, CLIENT_SECRET: clientSecret } = process.env;
const authProvider = new ClientCredentialsProvider({ clientId, clientSecret, expectedIssuer });
const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
const client = new Client({ name: "test", version: "1.0.0" });
try {
  await client.connect(transport);
  const { tools } = await client.listTools();
  const sum = await client.callTool({ name: "add", arguments: { a: 2, b: 40 } });
  const session = Boolean(transport.sessionId);
  await transport.terminateSession();
  await client.close();
  console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), text: sum.content[0].text, session, scope: authProvider.tokens()?.scope }));
} catch (failure) {
  console.log(JSON.stringify({ error: String(failure) }));
}
