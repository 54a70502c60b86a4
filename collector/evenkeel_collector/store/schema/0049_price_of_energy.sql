-- The price of a kilowatt-hour, for engines whose energy is measured; without a price, as before.
ALTER TABLE prices ADD COLUMN IF NOT EXISTS kwh Nullable(Float64) AFTER hour;
