-- What one evaluation run compared, and its own verdict. Gates with a tenant are those of a sender
-- with a tenant's token, which has no say in what is promoted.
SELECT
    countIf(isNotNull(gate)) AS num_gates,
    groupUniqArrayIf(attributes['evenkeel.eval.run_verdict'],
        attributes['evenkeel.eval.run_verdict'] != '') AS run_verdicts,
    groupUniqArrayIf(attributes['evenkeel.eval.run_headline'],
        attributes['evenkeel.eval.run_headline'] != '') AS headlines,
    groupUniqArrayIf(attributes['evenkeel.eval.baseline_text'],
        attributes['evenkeel.eval.baseline_text'] != '') AS baseline_texts,
    groupUniqArrayIf(attributes['evenkeel.eval.candidate_text'],
        attributes['evenkeel.eval.candidate_text'] != '') AS candidate_texts,
    groupUniqArrayIf(attributes['evenkeel.eval.other_changes'],
        attributes['evenkeel.eval.other_changes'] != '') AS other_changes
FROM evenkeel.eval_results
WHERE kind = 'gate' AND run_id = {run_id:String} AND attributes['evenkeel.tenant'] = ''
