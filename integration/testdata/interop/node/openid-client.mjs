// Discovers the gateway with openid-client, gets a token, uses it, introspects it
// and revokes it.
//
// Usage: node openid-client.mjs ISSUER METHOD, credentials in CLIENT_ID and
// CLIENT_SECRET. Prints what happened as JSON.

import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto; // Node.js 18 has it in a module only
const client = await import("openid-client");

const [issuer, method] = process.argv.slice(2);
const { CLIENT_ID, CLIENT_SECRET } = process.env;
const prove = { client_secret_basic: client.ClientSecretBasic, client_secret_post: client.ClientSecretPost }[method];

function configure(secret) {
  return client.discovery(new URL(issuer), CLIENT_ID, undefined, prove(secret), {
    algorithm: "oauth2",
    execute: [client.allowInsecureRequests], // a test on loopback
  });
}

async function thrown(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
}

const config = await configure(CLIENT_SECRET);
const token = await client.clientCredentialsGrant(config, { scope: "orders.read" });
const place = new URL("/orders/1?a=1&b=2", issuer);
const used = await client.fetchProtectedResource(config, token.access_token, place, "GET");
const told = await client.tokenIntrospection(config, token.access_token);
await client.tokenRevocation(config, token.access_token);
const challenge = (await thrown(client.fetchProtectedResource(config, token.access_token, place, "GET"))).cause[0];
const refused = await thrown(client.clientCredentialsGrant(await configure("wrong")));

console.log(
  JSON.stringify({
    type: token.token_type,
    scope: token.scope,
    expires_in: token.expires_in,
    used: used.status,
    active: told.active && told.client_id === CLIENT_ID,
    revoked: 200, // it throws otherwise
    after: challenge.parameters.error === "invalid_token" ? 401 : 0,
    error: refused.error ?? refused.cause[0].scheme,
    metadata: challenge.parameters.resource_metadata,
  }),
);
