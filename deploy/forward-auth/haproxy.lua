-- Asks snowgate about the request of txn and puts the verdict into variables.
local function snowgate(txn)
  local fields = {
    ["x-forwarded-method"] = { txn.sf:method() },
    ["x-forwarded-uri"] = { txn.sf:pathq() },
    ["x-forwarded-host"] = { txn.sf:req_hdr("host") },
    ["x-forwarded-proto"] = { txn.sf:ssl_fc() == 1 and "https" or "http" },
    ["x-forwarded-for"] = { txn.sf:src() },
  }
  -- Each line on its own: two of them are refused.
  for name, values in pairs(txn.http:req_get_headers()) do
    if name == "authorization" then
      fields[name] = {}
      for _, value in pairs(values) do table.insert(fields[name], value) end
    end
  end
  local verdict = core.httpclient():get({
    url = "http://snowgate:8080/oauth2/auth", headers = fields, timeout = 1000,
  })
  if not verdict or not verdict.status or verdict.status == 0 then return end
  local function said(name)
    local values = verdict.headers and verdict.headers[name]
    return values and values[0] or ""
  end
  txn:set_var("txn.snowgate_status", verdict.status)
  txn:set_var("txn.snowgate_challenge", said("www-authenticate"))
  txn:set_var("txn.snowgate_client", said("x-snowgate-client"))
  txn:set_var("txn.snowgate_scope", said("x-snowgate-scope"))
  txn:set_var("txn.snowgate_id", said("x-snowgate-token-id"))
  txn:set_var("txn.snowgate_expires", said("x-snowgate-token-expires"))
end

core.register_action("snowgate", { "http-req" }, snowgate)
