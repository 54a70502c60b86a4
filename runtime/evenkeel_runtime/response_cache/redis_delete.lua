-- Remove entries and announce it.
-- KEYS: recency zset, sizes hash, total, feed.
-- ARGV: key prefix of entries, most announcements kept, then the ids.
local removed = 0
for place = 3, #ARGV do
  local id = ARGV[place]
  local size = tonumber(redis.call('HGET', KEYS[2], id) or '0')
  redis.call('DECRBY', KEYS[3], size)
  redis.call('HDEL', KEYS[2], id)
  redis.call('ZREM', KEYS[1], id)
  redis.call('DEL', ARGV[1] .. id)
  if size > 0 then
    redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[2], '*', 'removed', id)
    removed = removed + 1
  end
end
return removed
