-- wrk asks with the tokens of a file in turn, one per line:
--
--   wrk -s bearers.lua URL -- FILE
--   wrk -s bearers.lua URL -- FILE count     also counts answers by status
--   wrk -s bearers.lua URL -- FILE post N    POSTs N bytes with each request
--
-- Requests are put together before the run, so picking one costs wrk the same for
-- every contestant, and little. Counting costs more and is for finding faults.
local requests, at = {}, 0
local threads = {}

function setup(thread)
   table.insert(threads, thread)
end

function init(args)
   local method, body
   if args[2] == "post" then
      method, body = "POST", string.rep("x", tonumber(args[3]))
   end
   for token in io.lines(args[1]) do
      requests[#requests + 1] = wrk.format(method, nil, { ["Authorization"] = "Bearer " .. token }, body)
   end
   if args[2] == "count" then
      statuses = {}
      response = function(status)
         statuses[status] = (statuses[status] or 0) + 1
      end
   end
end

function request()
   at = at % #requests + 1
   return requests[at]
end

function done()
   for _, thread in ipairs(threads) do
      for status, count in pairs(thread:get("statuses") or {}) do
         print(string.format("status %d: %d", status, count))
      end
   end
end
