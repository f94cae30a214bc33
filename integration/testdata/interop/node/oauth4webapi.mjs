// Discovers the gateway with oauth4webapi, gets a token, uses it, introspects it
// and revokes it.
//
// Usage: node oauth4webapi.mjs ISSUER METHOD, credentials in CLIENT_ID and
// CLIENT_SECRET. Prints what happened as JSON.

import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto; // Node.js 18 has it in a module only
const oauth = await import("oauth4webapi");

const [issuer, method] = process.argv.slice(2);
const { CLIENT_ID, CLIENT_SECRET } = process.env;
const http = { [oauth.allowInsecureRequests]: true }; // a test on loopback
const prove = { client_secret_basic: oauth.ClientSecretBasic, client_secret_post: oauth.ClientSecretPost }[method];
const client = { client_id: CLIENT_ID };

const issuerURL = new URL(issuer);
const server = await oauth.processDiscoveryResponse(
  issuerURL,
  await oauth.discoveryRequest(issuerURL, { ...http, algorithm: "oauth2" }),
);
const resource = await oauth.processResourceDiscoveryResponse(
  issuerURL,
  await oauth.resourceDiscoveryRequest(issuerURL, http),
);

async function token(secret) {
  const response = await oauth.clientCredentialsGrantRequest(server, client, prove(secret), { scope: "orders.read" }, http);
  return oauth.processClientCredentialsResponse(server, client, response);
}

async function call(token) {
  return oauth.protectedResourceRequest(token, "GET", new URL("/orders/1?a=1&b=2", issuerURL), undefined, undefined, http);
}

async function thrown(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
}

const auth = prove(CLIENT_SECRET);
const got = await token(CLIENT_SECRET);
const used = await call(got.access_token);
const told = await oauth.processIntrospectionResponse(
  server,
  client,
  await oauth.introspectionRequest(server, client, auth, got.access_token, http),
);
const revocation = await oauth.revocationRequest(server, client, auth, got.access_token, http);
await oauth.processRevocationResponse(revocation.clone());
const challenge = (await thrown(call(got.access_token))).cause[0];
const refused = await thrown(token("wrong"));

console.log(
  JSON.stringify({
    type: got.token_type,
    scope: got.scope,
    expires_in: got.expires_in,
    used: used.status,
    active: told.active && told.client_id === CLIENT_ID,
    revoked: revocation.status,
    after: challenge.parameters.error === "invalid_token" ? 401 : 0,
    error: refused.error ?? refused.cause[0].scheme, // the challenge comes first there
    resource: resource.resource,
    servers: resource.authorization_servers,
    metadata: challenge.parameters.resource_metadata,
  }),
);
