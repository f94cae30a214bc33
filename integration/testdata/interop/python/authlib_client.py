"""Gets a token with Authlib, uses it, introspects it and revokes it.

Usage: authlib_client.py URL METHOD, credentials in CLIENT_ID and CLIENT_SECRET.
Prints what happened as JSON.
"""

import json
import os
import sys

from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session

url, method = sys.argv[1:]
client_id, secret = os.environ["CLIENT_ID"], os.environ["CLIENT_SECRET"]


def session(secret):
    return OAuth2Session(
        client_id, secret, scope="orders.read", token_endpoint_auth_method=method
    )


client = session(secret)
token = client.fetch_token(url + "/oauth2/token", grant_type="client_credentials")
used = client.get(url + "/orders/1?a=1&b=2")
told = client.introspect_token(url + "/oauth2/introspect", token=token["access_token"])
revoked = client.revoke_token(url + "/oauth2/revoke", token=token["access_token"])
after = client.get(url + "/orders/1")
try:
    session("wrong").fetch_token(
        url + "/oauth2/token", grant_type="client_credentials"
    )
    error = None
except OAuthError as e:
    error = e.error

print(
    json.dumps(
        {
            "type": token["token_type"],
            "scope": token["scope"],
            "expires_in": token["expires_in"],
            "used": used.status_code,
            "active": told.json()["active"],
            "revoked": revoked.status_code,
            "after": after.status_code,
            "error": error,
        }
    )
)
