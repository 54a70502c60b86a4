-- Remove entries and announce it.
-- KEYS: recency zset, details hash, total, feed.
-- ARGV: key prefix of entries, most announcements kept, then the ids.
local removed = 0
for place = 3, #ARGV do
  local id = ARGV[place]
  local known = redis.call('HGET', KEYS[2], id)
  -- First what needs no memory: a full Redis refuses a script that begins with anything else.
  local num_deleted = redis.call('DEL', ARGV[1] .. id)
  redis.call('HDEL', KEYS[2], id)
  redis.call('ZREM', KEYS[1], id)
  if known then
    redis.call('DECRBY', KEYS[3], tonumber(string.match(known, '^%d+')))
  end
  if known or num_deleted > 0 then
    redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[2], '*', 'removed', id)
    removed = removed + 1
  end
end
return removed
