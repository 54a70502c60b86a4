-- Keep one entry, evict the least recently used beyond the byte bound, announce both.
-- KEYS: entry, recency zset, sizes hash, total, feed, then one set for each tag.
-- ARGV: id, data, ttl in ms, now, size, bound, key prefix of entries, most announcements kept.
local recency, sizes, total, feed = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, size, bound = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6])

local before = tonumber(redis.call('HGET', sizes, id) or '0')
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', recency, ARGV[4], id)
redis.call('HSET', sizes, id, size)
local held = redis.call('INCRBY', total, size - before)
for place = 6, #KEYS do
  redis.call('SADD', KEYS[place], id)
  redis.call('EXPIRE', KEYS[place], 86400 * 2)
end
redis.call('XADD', feed, 'MAXLEN', '~', ARGV[8], '*', 'added', id)

local evicted = {}
while held > bound do
  local oldest = redis.call('ZPOPMIN', recency)[1]
  if not oldest then break end
  held = redis.call('DECRBY', total, tonumber(redis.call('HGET', sizes, oldest) or '0'))
  redis.call('HDEL', sizes, oldest)
  redis.call('DEL', ARGV[7] .. oldest)
  redis.call('XADD', feed, 'MAXLEN', '~', ARGV[8], '*', 'removed', oldest)
  evicted[#evicted + 1] = oldest
end
return evicted
