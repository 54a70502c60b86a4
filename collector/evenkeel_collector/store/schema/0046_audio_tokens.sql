-- Tokens of sound have other prices than those of text, which price files do not have.
ALTER TABLE requests ADD COLUMN IF NOT EXISTS audio_tokens Nullable(UInt32);
