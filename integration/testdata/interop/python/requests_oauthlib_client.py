"""Gets a token with Requests-OAuthlib, uses it and revokes it.

Usage: requests_oauthlib_client.py URL METHOD, credentials in CLIENT_ID and
CLIENT_SECRET. Prints what happened as JSON.
"""

import json
import os
import sys

# OAuthlib insists on https; this is a test on loopback.
os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"

from oauthlib.oauth2 import BackendApplicationClient, InvalidClientError
from requests.auth import HTTPBasicAuth
from requests_oauthlib import OAuth2Session

url, method = sys.argv[1:]
client_id, secret = os.environ["CLIENT_ID"], os.environ["CLIENT_SECRET"]


def fetch(secret):
    session = OAuth2Session(
        client=BackendApplicationClient(client_id, scope=["orders.read"])
    )
    if method == "client_secret_basic":
        how = {"auth": HTTPBasicAuth(client_id, secret)}
    else:
        how = {"client_secret": secret, "include_client_id": True}
    return session, session.fetch_token(url + "/oauth2/token", **how)


client, token = fetch(secret)
used = client.get(url + "/orders/1?a=1&b=2")
told = client.post(
    url + "/oauth2/introspect",
    withhold_token=True,
    auth=HTTPBasicAuth(client_id, secret),
    data={"token": token["access_token"]},
)
revoked = client.post(
    url + "/oauth2/revoke",
    withhold_token=True,
    auth=HTTPBasicAuth(client_id, secret),
    data={"token": token["access_token"], "token_type_hint": "access_token"},
)
after = client.get(url + "/orders/1")
try:
    fetch("wrong")
    error = None
except InvalidClientError as e:
    error = e.error

print(
    json.dumps(
        {
            "type": token["token_type"],
            "scope": " ".join(token["scope"]),
            "expires_in": token["expires_in"],
            "used": used.status_code,
            "active": told.json()["active"],
            "revoked": revoked.status_code,
            "after": after.status_code,
            "error": error,
        }
    )
)
