-- What one evaluation run compared and how it ended: its gates, and what it says of itself.
SELECT
    groupArrayIf(ifNull(verdict, ''), isNotNull(gate)) AS verdicts,
    groupArrayIf(ifNull(slice, ''), isNotNull(gate)) AS slices,
    groupUniqArrayIf(attributes['evenkeel.eval.run_verdict'],
        attributes['evenkeel.eval.run_verdict'] != '') AS run_verdicts,
    groupUniqArrayIf(attributes['evenkeel.eval.baseline_text'],
        attributes['evenkeel.eval.baseline_text'] != '') AS baseline_texts,
    groupUniqArrayIf(attributes['evenkeel.eval.candidate_text'],
        attributes['evenkeel.eval.candidate_text'] != '') AS candidate_texts
FROM evenkeel.eval_results
WHERE kind = 'gate' AND run_id = {run_id:String}
