-- Keep one entry, evict the least recently used beyond the byte bound, announce both.
-- KEYS: entry, recency zset, details hash, total, feed.
-- ARGV: id, data, ttl in ms, now, size, bound, key prefix of entries, most announcements kept,
-- details: the size, then each tag.
local recency, details, total, feed = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, size, bound = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6])

local function find_size(of)
  return tonumber(string.match(redis.call('HGET', details, of) or '0', '^%d+'))
end

local before = find_size(id)
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if redis.call('EXISTS', recency, details, total) < 3 then
  -- At first, or Redis has evicted one of them: what the others count is not there for anyone.
  redis.call('DEL', recency, details, total)
  before = 0
end
redis.call('ZADD', recency, ARGV[4], id)
redis.call('HSET', details, id, ARGV[9])
local held = redis.call('INCRBY', total, size - before)
redis.call('XADD', feed, 'MAXLEN', '~', ARGV[8], '*', 'added', id)

local evicted = {}
while held > bound do
  local oldest = redis.call('ZPOPMIN', recency)[1]
  if not oldest then break end
  held = redis.call('DECRBY', total, find_size(oldest))
  redis.call('HDEL', details, oldest)
  redis.call('DEL', ARGV[7] .. oldest)
  redis.call('XADD', feed, 'MAXLEN', '~', ARGV[8], '*', 'removed', oldest)
  evicted[#evicted + 1] = oldest
end
return evicted
