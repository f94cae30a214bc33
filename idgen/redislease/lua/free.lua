-- free takes numbers from the addresses that keep them for ever
-- (WORKER_ID=registry), so that other addresses can get them. A number is left
-- alone while its lease lasts or its ceiling is still to come. Nothing but the
-- claim of the address goes: the number's record stays, and its next holder
-- starts above the ceiling in it.
--
-- ARGV: scheme, lead, skew, number (-1: all), how long the lease must have
-- ended, dry run (1/0)
--
-- Returns {status, wait, text, number, address, number, address …}:
--   freed       those that follow
--   held        the number is somebody's; text: whose; wait: for how long still
--   unkept      no address keeps the number
--   quarantine  holders that live may not be known: come back after wait
--   empty       there is no registry
--   scheme      the registry is of another scheme; text: which

local wanted, unused, dry = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'

if redis.call('HEXISTS', RECORDS, 'meta') == 0 then return { 'empty', 0, '' } end
local r, recorded = open(ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
if not r then return { 'scheme', 0, recorded } end
if now < r.base then return { 'quarantine', r.base - now + 1, '' } end

local reply, held = { 'freed', 0, '' }, nil
local kept = redis.call('HGETALL', KEPT)
for i = 1, #kept, 2 do
  local address, n = kept[i], tonumber(kept[i + 1])
  if wanted < 0 or n == wanted then
    local rec = read(r, n)
    local left = math.max(leased_until(n), rec and rec.ceiling or 0) + unused - now
    if left > 0 then
      held = { 'held', left, rec and (rec.owner .. ' at ' .. rec.address) or address }
    else
      if not dry then
        redis.call('HDEL', KEPT, address)
        if tonumber(redis.call('HGET', ADDRESSES, address) or -1) == n then
          redis.call('HDEL', ADDRESSES, address)
        end
      end
      reply[#reply + 1], reply[#reply + 2] = n, address
    end
  end
end
if wanted >= 0 and #reply == 3 then return held or { 'unkept', 0, '' } end
return reply
