-- What one evaluation run compared and how its gates ended: prompts by side, verdicts by gate.
SELECT
    groupUniqArrayIf(concat(ifNull(prompt_name, ''), '@', ifNull(prompt_version, '')),
        kind = 'answer' AND side = 'A') AS baseline,
    groupUniqArrayIf(concat(ifNull(prompt_name, ''), '@', ifNull(prompt_version, '')),
        kind = 'answer' AND side = 'B') AS candidate,
    groupArrayIf(ifNull(verdict, ''), kind = 'gate' AND isNotNull(gate)) AS verdicts,
    groupArrayIf(ifNull(slice, ''), kind = 'gate' AND isNotNull(gate)) AS slices
FROM evenkeel.eval_results
WHERE run_id = {run_id:String}
