-- The query of the view spans_of_others_to_requests: LLM requests that others trace, an engine itself,
-- OpenInference, OpenLLMetry, and plain OpenTelemetry GenAI clients. views_of_others.py fills in how each
-- engine's spans are recognised and read (evenkeel/engines/*.toml). Numbers follow the rule in
-- 02_requests.sql. Durations by clients include the network; a span whose times were replaced has none.
-- In steps, each of which reads the columns of the one below: the engine analyses a view at each insert, and
-- replaces each alias by what it stands for, but not a column.
WITH
    (keys -> SpanAttributes[arrayFirst(key -> SpanAttributes[key] != '', keys)]) AS first_of,
    ((engines, attributes) -> SpanAttributes[transform(server, engines, attributes, '')]) AS served,
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    -- Anthropic's, Bedrock's, Gemini's, Mistral's and the Responses API's words for an answer that was cut or
    -- filtered, and OpenAI's, which rules count (docs/decisions/0361-cut-and-filtered-in-one-word.md).
    ['max_tokens', 'max_output_tokens', 'model_length', 'model_context_window_exceeded',
        'refusal', 'content_filtered', 'guardrail_intervened', 'content-filter', 'safety', 'recitation',
        'blocklist', 'prohibited_content', 'spii', 'image_safety'] AS provider_ends
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ServiceName AS service,
    operation,
    -- A request that states no ID has its span's, so that it can be opened.
    coalesce(nullIf(if(server != '', $request_id,
        -- The last is OpenInference's, where answers are stored (redaction/answer_id.py).
        coalesce(nullIf(first_of(['gen_ai.request.id', 'gen_ai.response.id', 'llm.response.id']), ''),
            extract(SpanAttributes['output.value'],
                '"id": ?"((?:chatcmpl-|cmpl-|resp_|msg_)[A-Za-z0-9_-]{1,100})"'))), ''), SpanId) AS request_id,
    nullIf(if(SpanAttributes['evenkeel.tenant'] != '', SpanAttributes['evenkeel.tenant'],
        ResourceAttributes['evenkeel.tenant']), '') AS tenant,
    nullIf(if(length(said_session) > 256, concat('long-', lower(hex(sipHash128(said_session)))), said_session), '')
        AS session_id,
    if(server != '',
        coalesce(nullIf($model, ''),
            nullIf(first_of(['gen_ai.request.model', 'gen_ai.response.model']), ''), ServiceName),
        coalesce(nullIf(first_of(['gen_ai.request.model', 'llm.request.model_name']), ''),
            nullIf(JSONExtractString(SpanAttributes['llm.invocation_parameters'], 'model'), ''),
            first_of(['llm.model_name', 'gen_ai.response.model']))) AS model,
    nullIf(SpanAttributes['evenkeel.slo_class'], '') AS slo_class,
    nullIf(SpanAttributes['evenkeel.route'], '') AS route,
    nullIf(first_of(['evenkeel.prompt.name', 'gen_ai.prompt.name', 'traceloop.prompt.key',
        'prompt.id']), '') AS prompt_name,
    nullIf(first_of(['evenkeel.prompt.version', 'gen_ai.prompt.version', 'traceloop.prompt.version',
        'llm.prompt_template.version']), '') AS prompt_version,
    -- The conventions set error.type only if the call failed; not all senders set the status as well.
    if(StatusCode = 'Error' OR StatusCode = 'Unset' AND SpanAttributes['error.type'] != '', 'error', 'ok')
        AS status,
    nullIf(transform(lower(said_finish), provider_ends,
        arrayMap(place -> if(place <= 4, 'length', 'content_filter'), arrayEnumerate(provider_ends)), said_finish), '')
        AS finish_reason,
    nullIf(if(SpanAttributes['error.type'] != '', SpanAttributes['error.type'],
        arrayFirst((a, name) -> name = 'exception', Events.Attributes, Events.Name)['exception.type']),
        '') AS error_type,
    accurateCastOrNull(numbers[1], 'UInt32') AS max_tokens,
    numbers[5] AS temperature,
    accurateCastOrNull(numbers[2] + apart_tokens.1, 'UInt32') AS input_tokens,
    -- Where all tokens were thoughts, no output is stated.
    accurateCastOrNull(coalesce(numbers[3] + apart_tokens.2, nullIf(apart_tokens.2, 0)), 'UInt32') AS output_tokens,
    accurateCastOrNull(numbers[4], 'UInt32') AS cached_tokens,
    accurateCastOrNull(numbers[12], 'UInt32') AS cache_write_tokens,
    accurateCastOrNull(ifNull(numbers[13], nullIf(apart_tokens.2, 0)), 'UInt32') AS reasoning_tokens,
    -- Who reports no reasoning had none, or includes it in what the user sees. More reasoning than output is
    -- counted apart, as by Gemini.
    if(isNull(numbers[3]), NULL, toUInt32(ifNull(numbers[3], 0.)
        - if(apart_tokens.2 > 0 OR ifNull(numbers[13] > numbers[3], 1), 0., ifNull(numbers[13], 0.))))
        AS visible_tokens,
    numbers[14] AS given_cost,
    if(isNull(numbers[15]) AND isNull(numbers[16]), NULL,
        toUInt32(ifNull(numbers[15], 0.) + ifNull(numbers[16], 0.))) AS audio_tokens,
    numbers[6] AS queue_s,
    numbers[7] AS prefill_s,
    numbers[8] AS decode_s,
    numbers[9] AS ttft_s,
    if(numbers[3] >= 2, numbers[8] / (numbers[3] - 1), NULL) AS tpot_s,
    numbers[10] AS e2e_s,
    coalesce(numbers[11], 1) AS sample_weight,
    is_clamped AS is_time_clamped,
    who AS source,
    -- Anybody may name an engine of their own.
    multiIf(match(lower(told_engine), '^[a-z0-9][a-z0-9.-]{0,39}$$'), lower(told_engine),
        server != '', server,
        nullIf(transform(provider, [$providers], [$engines], ''), '')) AS engine,
    CAST(arrayMap(place -> (names[place], reason_of(texts[place])),
        arrayFilter((place, text, number) -> text != '' AND isNull(number),
            arrayEnumerate(texts), texts, numbers)),
        'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
FROM (
    SELECT *,
        -- Tokens that the total shows to be counted apart: of the cache (Bedrock), and reasoning. Gemini's
        -- thoughts are, too, and OpenLLMetry does not say how many they are: what is left of the total.
        arrayMap((n, total, is_gemini) -> (
                if(total - n[2] - ifNull(n[3], 0) = ifNull(n[4], 0) + ifNull(n[12], 0) AND NOT is_gemini,
                    ifNull(n[4], 0) + ifNull(n[12], 0), 0),
                multiIf(total - n[2] - ifNull(n[3], 0) = n[13]
                        AND (n[13] != ifNull(n[4], 0) + ifNull(n[12], 0) OR is_gemini), assumeNotNull(n[13]),
                    is_gemini AND isNull(n[13]) AND total - n[2] - ifNull(n[3], 0) BETWEEN 1 AND 1e8
                        AND total = floor(total), assumeNotNull(total - n[2] - ifNull(n[3], 0)), 0)),
            [numbers],
            [if(server = '', toFloat64OrNull(said_total), NULL)],
            [position(lower(first_of(['gen_ai.request.model', 'llm.model_name'])), 'gemini') > 0])[1] AS apart_tokens
    FROM (
        SELECT *,
            arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
                    AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
                    toFloat64OrNull(text), NULL),
                texts,
                [0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 1., 0., 0., 0., 0., 0.],
                [4294967295., 100000000., 100000000., 100000000., 100., 1000000., 1000000., 1000000., 1000000.,
                    1000000., 1000000., 100000000., 100000000., 1000000000., 100000000., 100000000.],
                [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1]) AS numbers
        FROM (
            WITH
                (keys -> SpanAttributes[arrayFirst(key -> SpanAttributes[key] != '', keys)]) AS first_of,
                -- The attribute that an engine's own span has a field in; '' if it has none.
                ((engines, attributes) -> SpanAttributes[transform(server, engines, attributes, '')]) AS served,
                -- A duration may have a unit: 12.5ms. Others are seconds.
                (text -> if(match(text, '^[0-9.]+(ns|µs|ms|s)$$'), ifNull(toString(
                    toFloat64OrNull(extract(text, '^[0-9.]+')) * transform(extract(text, '[a-zµ]+$$'),
                        ['ns', 'µs', 'ms', 's'], [1e-9, 1e-6, 1e-3, 1.], 1.)), text), text)) AS in_seconds,
                -- OpenInference: what was asked for, which a failed request has too.
                (name -> ifNull(toString(JSONExtract(SpanAttributes['llm.invocation_parameters'], name,
                    'Nullable(Float64)')), '')) AS invoked_number
            SELECT *,
                ['max_tokens', 'input_tokens', 'output_tokens', 'cached_tokens', 'temperature', 'queue_s', 'prefill_s',
                    'decode_s', 'ttft_s', 'e2e_s', 'sample_weight', 'cache_write_tokens', 'reasoning_tokens',
                    'given_cost', 'audio_tokens', 'audio_tokens'] AS names,
                [
                    multiIf(server != '', $max_tokens,
                        first_of(['gen_ai.request.max_tokens', 'gen_ai.request.max_completion_tokens']) != '',
                        first_of(['gen_ai.request.max_tokens', 'gen_ai.request.max_completion_tokens']),
                        invoked_number('max_tokens')),
                    if(server != '', $input_tokens, first_of(['gen_ai.usage.input_tokens',
                        'gen_ai.usage.prompt_tokens', 'llm.token_count.prompt'])),
                    if(server != '', $output_tokens, first_of(['gen_ai.usage.output_tokens',
                        'gen_ai.usage.completion_tokens', 'llm.token_count.completion'])),
                    if(server != '', $cached_tokens, first_of(['gen_ai.usage.cache_read.input_tokens',
                        'gen_ai.usage.cache_read_input_tokens', 'llm.token_count.prompt_details.cache_read',
                        'ai.usage.cachedInputTokens'])),
                    multiIf(server != '', $temperature, SpanAttributes['gen_ai.request.temperature'] != '',
                        SpanAttributes['gen_ai.request.temperature'], invoked_number('temperature')),
                    in_seconds($queue_s),
                    in_seconds($prefill_s),
                    in_seconds($decode_s),
                    multiIf(server != '', in_seconds($ttft_s),
                        SpanAttributes['gen_ai.response.time_to_first_chunk'] != '',
                        SpanAttributes['gen_ai.response.time_to_first_chunk'],
                        is_clamped OR first_chunk < Timestamp, '',
                        toString((toUnixTimestamp64Nano(first_chunk) - toUnixTimestamp64Nano(Timestamp)) / 1e9)),
                    multiIf($e2e_s != '', in_seconds($e2e_s), is_clamped, '', toString(Duration / 1e9)),
                    SpanAttributes['evenkeel.sample_weight'],
                    -- Anthropic's SDK and Strands say cache_write.
                    first_of(['gen_ai.usage.cache_creation.input_tokens', 'gen_ai.usage.cache_creation_input_tokens',
                        'gen_ai.usage.cache_write.input_tokens', 'gen_ai.usage.cache_write_input_tokens',
                        'llm.token_count.prompt_details.cache_write', 'ai.usage.inputTokenDetails.cacheWriteTokens']),
                    first_of(['gen_ai.usage.reasoning.output_tokens', 'gen_ai.usage.reasoning_tokens',
                        'gen_ai.usage.details.reasoning_tokens', 'llm.token_count.completion_details.reasoning',
                        'ai.usage.reasoningTokens']),
                    -- OpenInference; OpenLIT and Langfuse; Pydantic AI; LiteLLM, and with LITELLM_OTEL_V2.
                    -- An answer from its cache costs nothing.
                    if(lower(SpanAttributes['litellm.cache_hit']) = 'true', '0', first_of(['llm.cost.total',
                        'gen_ai.usage.cost', 'operation.cost', 'gen_ai.cost.total_cost', 'litellm.cost.total'])),
                    first_of(['gen_ai.usage.audio.input_tokens', 'llm.token_count.prompt_details.audio']),
                    first_of(['gen_ai.usage.audio.output_tokens', 'llm.token_count.completion_details.audio'])
                ] AS texts,
                first_of(['gen_ai.usage.total_tokens', 'llm.usage.total_tokens', 'llm.token_count.total'])
                    AS said_total,
                -- Whom the client asked, as its instrumentation says.
                lower(first_of(['gen_ai.provider.name', 'gen_ai.system', 'llm.provider', 'llm.system']))
                    AS provider,
                multiIf(startsWith(SpanAttributes['gen_ai.response.finish_reasons'], '['),
                    JSONExtractString(SpanAttributes['gen_ai.response.finish_reasons'], 1),
                    SpanAttributes['gen_ai.response.finish_reasons'] != '',
                    SpanAttributes['gen_ai.response.finish_reasons'],
                    first_of(['gen_ai.response.finish_reason', 'llm.response.finish_reason',
                        'gen_ai.completion.0.finish_reason', 'llm.finish_reason'])) AS said_finish,
                -- An ID of more than 256 characters is replaced by its hash, as for tools (0036_sessions.sql).
                first_of(['gen_ai.conversation.id', 'session.id', 'langfuse.session.id',
                    'traceloop.association.properties.session_id', 'traceloop.association.properties.conversation_id',
                    'langsmith.trace.session_id', 'langsmith.metadata.session_id', 'mlflow.trace.session'])
                    AS said_session
            FROM (
                WITH
                    -- LiteLLM's names for calls, and ours.
                    ['acompletion', 'responses', 'aresponses', 'anthropic_messages', 'aanthropic_messages',
                        'text_completion', 'atext_completion', 'generate_content', 'agenerate_content',
                        'generate_content_stream', 'agenerate_content_stream'] AS litellm_calls,
                    ['chat', 'chat', 'chat', 'chat', 'chat', 'text_completion', 'text_completion', 'generate_content',
                        'generate_content', 'generate_content', 'generate_content'] AS litellm_operations
                SELECT *,
                    multiIf(
                        server != '', server,
                        SpanAttributes['openinference.span.kind'] = 'LLM', 'openinference',
                        SpanAttributes['llm.request.type'] IN ('chat', 'completion')
                            OR has(litellm_calls, SpanAttributes['llm.request.type']), 'openllmetry',
                        -- Of any kind: agent frameworks, and models within the process, are no clients. Logfire's
                        -- records of a moment, such as that a stream has ended, come besides the call's span.
                        SpanAttributes['gen_ai.request.model'] != ''
                            AND SpanAttributes['logfire.span_type'] IN ('', 'span')
                            AND (SpanAttributes['gen_ai.operation.name']
                                    IN ('chat', 'text_completion', 'generate_content')
                                -- Older conventions have no operation, nor has Vercel's AI SDK up to 6. Other
                                -- types and kinds are no such call: LiteLLM's embeddings have output tokens, too, 0.
                                OR SpanAttributes['gen_ai.operation.name'] = ''
                                    AND SpanAttributes['llm.request.type'] = ''
                                    AND SpanAttributes['openinference.span.kind'] = ''
                                    AND (SpanAttributes['ai.operationId'] != ''
                                        OR SpanAttributes['gen_ai.usage.output_tokens'] != ''
                                        OR SpanAttributes['gen_ai.usage.completion_tokens'] != '')),
                            'gen_ai',
                        '') AS who,
                    transform(said_call, litellm_calls, litellm_operations) AS operation
                FROM (
                    SELECT *,
                        -- An engine's own span; '' is a client's.
                        multiIf(
                            $servers,
                            '') AS server,
                        mapContains(SpanAttributes, 'evenkeel.clamped.start_unix_nano') AS is_clamped,
                        arrayFirst((t, name) -> name IN ('First Token Stream Event', 'llm.content.completion.chunk',
                                'gen_ai.content.completion.chunk', 'ai.stream.firstChunk'),
                            Events.Timestamp, Events.Name) AS first_chunk,
                        multiIf(SpanAttributes['gen_ai.operation.name'] != '',
                            SpanAttributes['gen_ai.operation.name'],
                            SpanAttributes['llm.request.type'] != '', SpanAttributes['llm.request.type'], 'chat')
                            AS said_call,
                        if(SpanAttributes['evenkeel.engine.name'] != '', SpanAttributes['evenkeel.engine.name'],
                            ResourceAttributes['evenkeel.engine.name']) AS told_engine
                    FROM spans_of_others
                    WHERE SpanAttributes['evenkeel.status'] = '' AND NOT startsWith(SpanName, 'evenkeel.')
                )
                WHERE who != ''
            )
        )
    )
)
