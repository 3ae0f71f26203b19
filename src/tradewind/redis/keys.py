"""Every key string of the product. One method per key; its docstring is the schema (see docs/redis-schema.md).

A docstring reads: type; what it holds. TTL. Writer. Seed section where the seed documents fix the name.
In cluster mode all keys of the task plane carry one hash tag, so that a script may touch several of them.
"""

from __future__ import annotations


class Keys:
    def __init__(self, prefix: str = "", *, cluster: bool = False, tag: str = "tw") -> None:
        #: What goes before every key; pub/sub channels have the configured prefix only.
        self.p = f"{prefix}{{{tag}}}:" if cluster else prefix
        self.channel_prefix = prefix
        self.is_cluster = cluster

    # queues

    def queue(self, priority: str) -> str:
        """list; ids of queued tasks, new ones on the left, next one on the right. No TTL. task_submit, task_assign. Seed 004 §1."""
        return f"{self.p}queue:{priority}"

    def delayed(self) -> str:
        """zset; ids of tasks that wait for a time; score = seconds since the epoch with a fraction. No TTL. task_submit, task_finish, task_promote. Seed 004 §9."""
        return f"{self.p}queue:delayed"

    def parked(self) -> str:
        """set; `priority:route` of every non-empty parking list. No TTL. task_assign."""
        return f"{self.p}queue:parked"

    def parking(self, priority: str, route: str) -> str:
        """list; ids of queued tasks whose type has no free worker, is paused or rate-limited; route = type or type@labels. No TTL. task_assign."""
        return f"{self.p}queue:parked:{priority}:{route}"

    def paused(self) -> str:
        """set; `high`, `normal` or `type:{type}`. No TTL. TaskStore.pause."""
        return f"{self.p}queue:paused"

    def dead(self) -> str:
        """zset; ids of tasks that ended DEAD, FAILED or TIMEOUT; score = ms. Bounded by `tasks.dead_keep`, swept hourly. Scripts that close a task."""
        return f"{self.p}queue:dead"

    # tasks

    def task(self, task_id: str) -> str:
        """hash; type, status, pri, at, due, max, tmo, ddl, lock, lab, n, stalls, tok, worker, start, end, prog, err, wait, c, tomb, re, x. Expires 300 s after its archive. Task scripts."""
        return f"{self.p}task:{task_id}"

    def body(self, task_id: str) -> str:
        """string; line 1 the request as JSON, line 2 (once ended) the outcome as JSON. Lives as long as the task. Task scripts."""
        return f"{self.p}task:{task_id}:body"

    def idempotency(self, key: str) -> str:
        """string; `{sha1 of the request} {task id}`. 24 h at least. task_submit."""
        return f"{self.p}task:idem:{key}"

    def cancel(self, task_id: str) -> str:
        """string "1"; asks the worker of a running task to stop. Lives as long as the task, at least 3600 s. task_cancel. Seed 004 §4."""
        return f"{self.p}task:cancel:{task_id}"

    def cache(self, task_id: str) -> str:
        """string; the task as JSON. 300 s, filled on read, deleted by every transition. task_cache. Seed 004 §5."""
        return f"{self.p}task:cache:{task_id}"

    def status(self, task_id: str) -> str:
        """string; the status word. 300 s, filled on read, deleted by every transition. task_cache. Seed 004 §5."""
        return f"{self.p}task:status:{task_id}"

    def token(self) -> str:
        """string; counter that fencing tokens come from. No TTL. task_take."""
        return f"{self.p}task:token"

    def marked(self) -> str:
        """set; ids of running tasks that somebody waits for, cached or asked to stop, or that hold a lock: looked at closely when they end. Members leave with the task's end. task_take, task_wait, task_cache, task_cancel."""
        return f"{self.p}task:marked"

    def deadlines(self) -> str:
        """zset; ids of tasks with a deadline; score = ms. Members leave when it has passed. task_submit, task_expire."""
        return f"{self.p}task:deadlines"

    def offer(self, digest: str) -> str:
        """hash; what workers with the same code offer: task type → its signature as JSON, `node {type}` → its description. Lives as long as they do: 30 s after the last beat. worker_register, worker_beat."""
        return f"{self.p}task:types:{digest}"

    def types(self) -> str:
        """hash; task type → its last signature as JSON: which names are known while no worker offers them. Swept after 7 days without a worker. worker_register."""
        return f"{self.p}task:types"

    def outbox(self) -> str:
        """stream; ids of ended tasks that SQL does not have yet. Trimmed after the SQL commit. Scripts that close a task, task_archived."""
        return f"{self.p}task:outbox"

    def outbox_count(self) -> str:
        """string; how many tasks the outbox holds; at `tasks.outbox_max` submit answers 429. As the outbox."""
        return f"{self.p}task:outbox:count"

    def lock(self, name: str) -> str:
        """string; worker id that runs the exclusive task of that name. 300 s, renewed with the lease, guarded release. task_take, task_finish. Seed 004 §10."""
        return f"{self.p}lock:task:{name}"

    # workers

    def worker(self, worker_id: str) -> str:
        """hash; id, name, address, api_url, capacity, current_load, supported_types, supported_nodes, last_heartbeat, status, labels, window, gen, host, pid, started_ms, trial. 30 s. worker_register, worker_beat. Seed 004 §3."""
        return f"{self.p}worker:{worker_id}"

    def worker_queue(self, worker_id: str) -> str:
        """list; ids assigned to the worker, next one on the right. Emptied by take, release or evict. task_assign. Seed 004 §1."""
        return f"{self.p}worker:{worker_id}:queue"

    def worker_inflight(self, worker_id: str) -> str:
        """zset; ids that the worker runs; score = fencing token of the attempt. Emptied by finish, release or evict. task_take."""
        return f"{self.p}worker:{worker_id}:inflight"

    def worker_type(self, task_type: str) -> str:
        """set; ids of the workers that support the type. Members leave with their worker. worker_register. Seed 004 §3."""
        return f"{self.p}worker:type:{task_type}"

    def worker_types(self) -> str:
        """set; every type that has a `worker:type:` set. Swept with them. worker_register."""
        return f"{self.p}worker:types"

    def workers(self) -> str:
        """zset; worker ids; score = ms when the lease ends. Members leave by worker_leave or worker_evict."""
        return f"{self.p}workers"

    # scheduler

    def leader(self) -> str:
        """string; id of the leading scheduler. 10 s, renewed every 3 s. leader_acquire, leader_renew. Seed 004 §2."""
        return f"{self.p}scheduler:leader"

    def epoch(self) -> str:
        """string; counter of terms; every leader script compares it. No TTL. leader_acquire."""
        return f"{self.p}scheduler:epoch"

    def wake(self) -> str:
        """list of at most one element; the leader blocks on it. No TTL. Any script that makes work for the leader."""
        return f"{self.p}scheduler:wake"

    def schedules(self) -> str:
        """hash; name of a periodic task → its definition as JSON. Until removed. ScheduleStore."""
        return f"{self.p}schedule:config"

    def schedules_due(self) -> str:
        """zset; names of periodic tasks; score = ms of the next slot. With the definition. ScheduleStore, schedule_fire."""
        return f"{self.p}schedule:due"

    # flows

    def flow(self, flow_id: str) -> str:
        """hash; id, config, structure, status, last_cycle, next_execution, created_at; ours: version, anchor_ms, due_ms, buffered_ms, drain, failures, missed, skipped, updated_ms. Until the flow is deleted. flow_register, cycle_open, flow_control. Seed 000."""
        return f"{self.p}flow:{flow_id}"

    def flows(self) -> str:
        """zset; ids of all flows, score 0 (in order of the alphabet). With the flow. flow_register."""
        return f"{self.p}flows"

    def flows_due(self) -> str:
        """zset; ids of running flows; score = ms of the next slot. With the schedule. flow_control, cycle_open."""
        return f"{self.p}flows:due"

    def flows_deadlines(self) -> str:
        """zset; `{flow}:{cycle}` of running cycles; score = ms when the cycle times out. Until the cycle ends. cycle_open."""
        return f"{self.p}flows:deadlines"

    def flows_wake(self) -> str:
        """list of at most one element; the flow scheduler blocks on it. No TTL. Any script that makes work for it."""
        return f"{self.p}flows:wake"

    def flow_triggers(self) -> str:
        """hash; flow id → its triggers as JSON, of flows that have any. With the flow. flow_register."""
        return f"{self.p}flows:triggers"

    def trigger_states(self) -> str:
        """hash; `{flow} {place of the trigger}` → what it remembers of its point as JSON. With the flow. TriggerWatch."""
        return f"{self.p}flows:trigger-states"

    def flows_ended(self) -> str:
        """list; ids of flows whose cycle ended while a slot was buffered. Emptied by the flow scheduler. node_commit."""
        return f"{self.p}flows:ended"

    def flow_plan(self, flow_id: str, version: str) -> str:
        """hash; node id → msgpack of how it is wired and run, `` → msgpack of the whole. While the flow or a cycle uses that version. flow_register."""
        return f"{self.p}flow:{flow_id}:plan:{version}"

    def flow_cycles(self, flow_id: str) -> str:
        """zset; numbers of the cycles that Redis keeps. With the flow. cycle_open."""
        return f"{self.p}flow:{flow_id}:cycles"

    def flow_running(self, flow_id: str) -> str:
        """set; numbers of the running cycles. Members leave when the cycle ends. cycle_open."""
        return f"{self.p}flow:{flow_id}:running"

    def cycle(self, flow_id: str, cycle: int) -> str:
        """hash; flow_id, cycle, status, start_time, end_time; ours: start_ms, version, trigger, slot_ms, total, open, completed, failed, skipped, terminated, stopped_by, reason, parent, request, stop. 7 days at most. cycle_open, node_commit. Seed 000."""
        return f"{self.p}flow:{flow_id}:cycle:{cycle}"

    def cycle_nodes(self, flow_id: str, cycle: int) -> str:
        """set; node ids. 7 days at most. cycle_open. Seed 000."""
        return f"{self.p}flow:{flow_id}:cycle:{cycle}:nodes"

    def cycle_done(self, flow_id: str, cycle: int) -> str:
        """hash; node id → `status start_ms end_ms worker message` of the nodes that have ended: what decides. 7 days at most. node_commit."""
        return f"{self.p}flow:{flow_id}:cycle:{cycle}:done"

    def cycle_outputs(self, flow_id: str, cycle: int) -> str:
        """hash; node id → JSON of its outputs by handle, of a cycle that a node of another flow waits for. 7 days at most. node_commit."""
        return f"{self.p}flow:{flow_id}:cycle:{cycle}:out"

    def cycle_inputs(self, flow_id: str, cycle: int, node_id: str) -> str:
        """hash; edge key `source:handle->target handle` → signal as JSON or `!reason`; also n, failed, skipped: how many arrived. 7 days at most. node_commit, signal_arrive. Seed 003 (edge key)."""
        return f"{self.p}flow:{flow_id}:cycle:{cycle}:in:{node_id}"

    def cycle_unsent(self, flow_id: str, cycle: int) -> str:
        """hash; routing key → signal as JSON, or a tombstone, that travels over the broker. Until it has arrived. node_commit, node_settle, signal_arrive."""
        return f"{self.p}flow:{flow_id}:cycle:{cycle}:unsent"

    def cycle_sent(self, flow_id: str, cycle: int) -> str:
        """set; those routing keys of `…:unsent` that the broker has confirmed. Until they have arrived. signal_sent, signal_arrive, signal_resend."""
        return f"{self.p}flow:{flow_id}:cycle:{cycle}:sent"

    def flows_unsent(self) -> str:
        """zset; `{flow}:{cycle}` of cycles with unconfirmed signals; score = ms since when. Until they are confirmed. node_commit, signal_sent."""
        return f"{self.p}flows:unsent"

    def flows_held(self) -> str:
        """zset; `{flow}:{cycle}` of cycles whose queues are not declared yet; score = ms when they were opened. Until they are let go. cycle_open, cycle_release."""
        return f"{self.p}flows:held"

    def flows_queues(self) -> str:
        """hash; `{flow}:{cycle}` → ids of the nodes whose queues were declared on the broker. Until they are deleted. BrokerKeeper."""
        return f"{self.p}flows:queues"

    def flows_hosts(self) -> str:
        """hash; `{flow}:{cycle}` → id of the worker that consumes its queues. Until the cycle ends. BrokerKeeper."""
        return f"{self.p}flows:hosts"

    def component_stop(self, flow_id: str, cycle: int, component_id: int) -> str:
        """string "1"; nodes of the component that have not started are skipped. 1 h. cycle_stop. Seed 000."""
        return f"{self.p}flow:{flow_id}:cycle:{cycle}:component:{component_id}:stop"

    def node_task(self, task_id: str) -> str:
        """string; JSON node_task_id, flow_id, cycle, node_id, node_type, worker_id, status, registered_at, updated_at, message, progress, config. 24 h. Node scripts. Seed 000."""
        return f"{self.p}node_tasks:{task_id}"

    def node_tasks_list(self) -> str:
        """set; ids of all node tasks. Swept with the cycles. Node scripts. Seed 000."""
        return f"{self.p}node_tasks_list"

    def worker_tasks(self, worker_id: str) -> str:
        """set; ids of the node tasks that the worker ran. Swept with the cycles, 7 days after the last one at most. Node scripts. Seed 000."""
        return f"{self.p}worker_tasks:{worker_id}"

    def node_state(self, task_id: str) -> str:
        """hash; status, updated_at, error_message; ours: start_ms, end_ms, worker. 24 h. Node scripts. Seed 000."""
        return f"{self.p}trading_flow:node:{task_id}"

    def node_terminate(self, task_id: str) -> str:
        """string; JSON reason, timestamp: asks a node to stop. 1 h. node_terminate. Seed 000."""
        return f"{self.p}trading_flow:node:{task_id}:terminate"

    def node_types(self) -> str:
        """hash; node type → its last description as JSON: which types are known while no worker offers them. Swept after 7 days without a worker. FlowHost."""
        return f"{self.p}flows:types"

    def flow_outbox(self) -> str:
        """stream; logs, signals and cycles that SQL does not have yet (field d: JSON list). Trimmed after the SQL commit, at most `flows.outbox_max` entries. Node scripts."""
        return f"{self.p}flow:outbox"

    def task_ended(self, hook: str) -> str:
        """list; ids of tasks with that hook that ended without their room's own commit. Emptied by the room. Scripts that close a task."""
        return f"{self.p}task:ended:{hook}"

    # points and models

    def _channel(self, channel: str) -> str:
        """In a cluster each channel has a slot of its own."""
        return f"{self.channel_prefix}comsrv:{{{channel}}}" if self.is_cluster else f"{self.p}comsrv:{channel}"

    def points(self, channel: str, kind: str) -> str:
        """hash; point id → value: `%.6f` for m and a, `0` or `1` for s and c. No TTL. board_write. Seed 001 §4.1."""
        return f"{self._channel(channel)}:{kind}"

    def points_ts(self, channel: str, kind: str) -> str:
        """hash; point id → ms of its value. With the values. board_write."""
        return f"{self._channel(channel)}:{kind}:ts"

    def points_quality(self, channel: str, kind: str) -> str:
        """hash; point id → `substituted`, `uncertain` or `bad`; points of good quality are not in it. With the values. board_write, point_substitute."""
        return f"{self._channel(channel)}:{kind}:q"

    def points_mark(self, channel: str, kind: str) -> str:
        """string; `newest ms of any point in the hash, id of the last write`, so that a newer batch needs no look at each point. With the values. board_write."""
        return f"{self._channel(channel)}:{kind}:mark"

    def point_substitutions(self, channel: str) -> str:
        """hash; `kind:id` of a substituted point → JSON of texts: value, since and until (ms), who, reason, source; device_value, device_ts, device_quality: what its device said last; held: how many of its readings were not shown. After the release `released` (ms), device_ts and nonce, until the device has said something newer, a day at most. With the channel. point_substitute, point_release, board_write."""
        return f"{self._channel(channel)}:sub"

    def channels_substituted(self) -> str:
        """set; channels that have or had substituted points. Until the channel is removed. Substitutions."""
        return f"{self.p}points:substituted"

    def channel_status(self, channel: str) -> str:
        """hash; online `0` or `1`, since_ms, last_ms (the last poll that succeeded), heard_ms (the newest value that was sent), error, polls, failures, missed, commands, dropped (readings lost), refused (messages too large to be read), points, poll_ms, poll_ms_max, owner; protocol (of the driver that writes its points); reload (changes with each request to connect anew). With the channel. StatusBook, request_reload."""
        return f"{self._channel(channel)}:status"

    def channel_todo(self, channel: str) -> str:
        """list; ids of commands for the channel, next one on the right; in a cluster with the commands, as one script moves both. Until they are taken or expire. command_submit. RESOLUTIONS B-34."""
        return f"{self.p}comsrv:{channel}:todo"

    def channel_doing(self, channel: str) -> str:
        """string; `{command id} {owner} {nonce}` of the command that the channel is carrying out. 24 h. command_take."""
        return f"{self.p}comsrv:{channel}:doing"

    def channel_outcomes(self, channel: str) -> str:
        """hash; `kind:id` of a c or a point → JSON id, value, status, result, message, who, source, at of its last command; `unsure` the command that left its state unknown, until it is known again. With the channel. Command scripts, command_known."""
        return f"{self.p}comsrv:{channel}:outcomes"

    def channels(self) -> str:
        """hash; channel id → its definition as JSON. Until removed. ChannelStore."""
        return f"{self.p}points:channels"

    def channel_versions(self) -> str:
        """hash; channel id → 16 hex digits of what its definition says; word → another one after each change. With the channels. channel_put, channel_remove."""
        return f"{self.p}points:channels:versions"

    def channel_owners(self) -> str:
        """hash; channel id → `process:ms when its lease ends` of the process that polls it; `:ms` of one that nobody has claimed since then. Swept with the channels. channel_claim."""
        return f"{self.p}points:owners"

    def channel_pollers(self) -> str:
        """zset; process that polls channels → ms when it counts as gone unless it renews its leases: channels are shared evenly among them. Swept as it is used. channel_claim."""
        return f"{self.p}points:pollers"

    def channel_claims(self) -> str:
        """hash; `bid:{channel}` → `process:ms` of a process with less than its share that asks for it; `extra:{process}` → `count:ms` of one that polls so many beyond its share because nobody claimed them. Each counts until its ms. 10 leases after the last change. channel_claim."""
        return f"{self.p}points:claims"

    def channels_pushed(self) -> str:
        """set; `channel:kind` of hashes that were written without a declared channel. Until the channel is removed. board_write."""
        return f"{self.p}points:pushed"

    def feed(self, channel: str = "") -> str:
        """stream; one entry per written batch: k key, t ms, d `id:value,…`, q `id:quality,…`, l 1 when late, o origin, p ms of each value when they differ, e 1 when the readings came with times of their own, b 1 when they replace values of later times because the clock was set back. No entry has a point twice. Trimmed to the slowest cursor and to `points.feed_max_bytes`. In a cluster one per channel, and this one for models. board_write."""
        return f"{self._channel(channel)}:feed" if channel and self.is_cluster else f"{self.p}points:feed"

    def feeds(self) -> str:
        """set; channels that have a feed of their own, in a cluster only. Until the channel is removed. board_note."""
        return f"{self.p}points:feeds"

    def feed_cursors(self) -> str:
        """hash; consumer → id of the last feed entry whose effect it has stored (`consumer@channel` for the feed of a channel), `consumer#missed` → what it knows of feed_missed, `consumer#told` → what of that was reported, `consumer#read` → how many entries that makes since ever (`consumer@channel#missed`, `…#read` likewise), `#floor` → how far feed_trim may be trimming now. Until it is removed. FeedReader, rule_change, feed_trim."""
        return f"{self.p}points:cursors"

    def feed_missed(self) -> str:
        """hash; consumer → how many feed entries were ever trimmed before it had read them; in a cluster also `consumer@channel`, of that feed. With the cursor. feed_trim, FeedReader."""
        return f"{self.p}points:missed"

    def model_values(self, model: str, kind: str) -> str:
        """hash; field → value: measurement `%.6f`, control `value:ts:source`. No TTL; measurements `models.output_ttl_days` after the last write if that is set. board_write, control_set. Seed 001 §4.3."""
        return f"{self.p}modsrv:{model}:{kind}"

    def model_ts(self, model: str, kind: str) -> str:
        """hash; field → ms of its value. With the values. board_write."""
        return f"{self.p}modsrv:{model}:{kind}:ts"

    def model_quality(self, model: str, kind: str) -> str:
        """hash; field → `substituted`, `uncertain` or `bad`; fields of good quality are not in it. With the values. board_write."""
        return f"{self.p}modsrv:{model}:{kind}:q"

    def model_mark(self, model: str, kind: str) -> str:
        """string; as points_mark, for a model. With the values. board_write."""
        return f"{self.p}modsrv:{model}:{kind}:mark"

    def models(self) -> str:
        """hash; model name → its definition as JSON. Until removed. ModelStore."""
        return f"{self.p}models:config"

    def model_templates(self) -> str:
        """hash; template name → its definition as JSON. Until removed. ModelStore."""
        return f"{self.p}models:templates"

    def model_states(self) -> str:
        """hash; model name → msgpack of what its calculations remember, `{model}:in` → where its inputs stood then. With the model. model_commit."""
        return f"{self.p}models:states"

    def models_version(self) -> str:
        """string; how often models or templates were changed: the notice to read them again. No TTL. model_change."""
        return f"{self.p}models:version"

    def models_status(self) -> str:
        """hash; last_ms: until when the values of all models are what they should be, as a channel's last_ms. Written once a second. No TTL. The model engine."""
        return f"{self.p}models:status"

    def models_leader(self) -> str:
        """string; id of the process that computes the models. 10 s, renewed. Leadership."""
        return f"{self.p}models:leader"

    def models_epoch(self) -> str:
        """string; counts the terms of models:leader; model_commit compares it. No TTL. Leadership."""
        return f"{self.p}models:epoch"

    def command(self, command_id: str) -> str:
        """hash; id, model_name, field_name, value, status, created_at, updated_at, message, source; ours: address, reason, who, expires_ms, timeout_ms, key, result, select, owner, token, actual. 24 h. Command scripts. Seed 001 §4.3."""
        return f"{self.p}cmd:{command_id}"

    def command_list(self, model: str) -> str:
        """list; ids of the last 1000 commands of a model (`channel_{id}` for bare points), newest first. Pruned as it is read. command_submit. Seed 001 §4.3."""
        return f"{self.p}cmd:list:{model}"

    def command_key(self, key: str) -> str:
        """string; `{sha1 of the request} {command id}` of an idempotency key. 24 h. command_submit."""
        return f"{self.p}cmd:key:{key}"

    def commands_open(self) -> str:
        """zset; ids of commands that have not ended; score = ms when they must have. Until they end. Command scripts."""
        return f"{self.p}cmd:open"

    def command_token(self) -> str:
        """string; counter of the fencing tokens of commands. No TTL. command_take."""
        return f"{self.p}cmd:token"

    def command_select(self, address: str) -> str:
        """hash; owner and value of who has selected the point, to operate it next. As long as the selection lasts. command_select."""
        return f"{self.p}cmd:select:{address}"

    def command_effects(self) -> str:
        """hash; id of a command → `address value ms` that the board must still show; value `?`: that it is uncertain. Until it does. Command scripts, effects_settled."""
        return f"{self.p}cmd:effects"

    def commands_owed(self) -> str:
        """hash; address → `{ms when due} {1 = an alarm says so} {command id} {JSON raw, value, since_ms, channel}` of the write that a device is owed (the 0 of a pulse). From before the first write until it is confirmed or dismissed. command_owe, owed_done."""
        return f"{self.p}cmd:owed"

    def command_journal(self) -> str:
        """stream; one entry per transition of a command: id, from, to, at, address, value, source, who, reason, result, message. About the last 10,000. Command scripts."""
        return f"{self.p}cmd:journal"

    # rules

    def rule(self, rule_id: str) -> str:
        """string; the rule as JSON. No TTL. rule_change. Seed 001 §3.4."""
        return f"{self.p}rulesrv:rule:{rule_id}"

    def rules(self) -> str:
        """set; ids of all rules. No TTL. rule_change. Seed 001 §3.4."""
        return f"{self.p}rulesrv:rules"

    def rule_group(self, group_id: str) -> str:
        """string; the group as JSON. No TTL. rule_change. Seed 001 §3.4."""
        return f"{self.p}rulesrv:group:{group_id}"

    def rule_groups(self) -> str:
        """set; ids of all groups. No TTL. rule_change. Seed 001 §3.4."""
        return f"{self.p}rulesrv:groups"

    def rule_group_rules(self, group_id: str) -> str:
        """set; ids of the rules of a group. With the group. rule_change. Seed 001 §3.4."""
        return f"{self.p}rulesrv:group:{group_id}:rules"

    def rule_history(self, rule_id: str) -> str:
        """list; executions of a rule as JSON, newest first. Bounded by `rules.history_keep`, older than `rules.history_days` are dropped as it grows; the list goes so long after its newest. rule_commit, rule_done. Seed 001 §3.4."""
        return f"{self.p}rulesrv:history:{rule_id}"

    def rules_version(self) -> str:
        """string; how often rules or groups were changed: the notice to read them again. No TTL. rule_change."""
        return f"{self.p}rulesrv:version"

    def rule_states(self) -> str:
        """hash; rule id → msgpack of what its conditions and timers remember. With the rule. rule_commit."""
        return f"{self.p}rulesrv:states"

    def rule_since(self) -> str:
        """hash; rule id → id of the last feed entry when its conditions were saved or it was enabled: what comes after is judged, also by an engine that loads the rule later. With the rule. rule_change."""
        return f"{self.p}rulesrv:since"

    def rule_figures(self) -> str:
        """hash; `{rule id}:{word}` → executions, triggered, failed, ms of all executions, last_ms, fired_ms (when it last became active), stopped_ms (by the loop guard); `:{word}` → sums of removed rules. With the rule; the sums for ever. rule_commit, rule_done, rule_change."""
        return f"{self.p}rulesrv:figures"

    def rule_outbox(self) -> str:
        """stream; one entry per execution whose actions are still to be carried out. Until they are. rule_commit, rule_done."""
        return f"{self.p}rulesrv:outbox"

    def rule_pending(self) -> str:
        """list; msgpack of what a big round of rules has decided and is still to be carried out, in order. Until it is. rule_commit, rule_apply."""
        return f"{self.p}rulesrv:pending"

    def rules_leader(self) -> str:
        """string; id of the process that judges the rules. 10 s, renewed. Leadership."""
        return f"{self.p}rulesrv:leader"

    def rules_epoch(self) -> str:
        """string; counts the terms of rulesrv:leader; rule_commit compares it. No TTL. Leadership."""
        return f"{self.p}rulesrv:epoch"

    # alarms

    def alarm(self, alarm_id: str) -> str:
        """hash; id, title, description, level, status, category, priority, tags, source_point, threshold_value, actual_value, created_at, updated_at, acknowledged_by, acknowledged_at, resolved_at, data; ours: rule_id, count, first_seen, last_seen, shelved_until, cause, version, … No TTL; removed `alarms.retention_days` after it was resolved. Alarm scripts. Seed 001 §3.2."""
        return f"{self.p}alarm:{alarm_id}"

    def alarm_category(self, category: str) -> str:
        """set; ids of alarms. With the alarms. Alarm scripts. Seed 001 §3.2."""
        return f"{self.p}alarm:category:{category}"

    def alarm_level(self, level: str) -> str:
        """set; ids of alarms. With the alarms. Alarm scripts. Seed 001 §3.2."""
        return f"{self.p}alarm:level:{level}"

    def alarm_status(self, status: str) -> str:
        """set; ids of alarms. With the alarms. Alarm scripts. Seed 001 §3.2."""
        return f"{self.p}alarm:status:{status}"

    def alarm_date(self, date: str) -> str:
        """set; ids of alarms created on that day (UTC, YYYY-MM-DD). With the alarms. Alarm scripts. Seed 001 §3.2."""
        return f"{self.p}alarm:date:{date}"

    def alarm_bucket(self, hour: str) -> str:
        """hash; id of an alarm created in that hour (UTC, YYYYMMDDHH) → its record cut down to compact JSON (id, level, status, category, source_point, rule_id, title, created_at, version). With the alarms. Alarm scripts. Seed 001 §3.2."""
        return f"{self.p}alarm:buckets:{hour}"

    def alarm_realtime(self) -> str:
        """hash; `category:id` of each open alarm → JSON with id, level, created_at. Until it is resolved. Alarm scripts. Seed 001 §3.2."""
        return f"{self.p}alarm:realtime"

    def alarm_open(self) -> str:
        """hash; `{rule id}|{source}` → id of the one open alarm. Until it is resolved. Alarm scripts."""
        return f"{self.p}alarm:open"

    def alarm_order(self, name: str) -> str:
        """zset; ids of alarms, score = ms when they were created: `all`, `open`, per level among the open ones `open:{level}`, and `ended`. With the alarms. Alarm scripts."""
        return f"{self.p}alarm:order:{name}"

    def alarm_rule(self, rule_id: str) -> str:
        """set; ids of the open alarms of a rule. Until they are resolved. Alarm scripts."""
        return f"{self.p}alarm:rule:{rule_id}"

    def alarm_effects(self, alarm_id: str) -> str:
        """set; ids of the open alarms that this one suppresses as their cause. Until it ends. Alarm scripts."""
        return f"{self.p}alarm:effects:{alarm_id}"

    def alarm_nonce(self, nonce: str) -> str:
        """string; what a call with that nonce has done: the id of an alarm, or the reply to an operator's action. 5 min. alarm_raise, alarm_act."""
        return f"{self.p}alarm:nonce:{nonce}"

    def alarms_leader(self) -> str:
        """string; id of the process that keeps the alarms. 10 s, renewed. Leadership."""
        return f"{self.p}alarm:leader"

    def alarms_epoch(self) -> str:
        """string; counts the terms of alarm:leader. No TTL. Leadership."""
        return f"{self.p}alarm:epoch"

    def alarm_timers(self) -> str:
        """zset; `escalate:{id}`, `unshelve:{id}`, `close:{id}`, `release:{id}`; score = ms when it is due. Until done. Alarm scripts."""
        return f"{self.p}alarm:timers"

    def alarm_recent(self) -> str:
        """zset; ids of alarms raised in the last `alarms.flood_window_s`; score = ms. Trimmed with each. Alarm scripts."""
        return f"{self.p}alarm:recent"

    def alarm_figures(self) -> str:
        """hash; counts and sums for the statistics: raised, acknowledged, resolved, ack_ms, resolve_ms, `level:{level}`, flood_since, …; `journal_dropped:{reader}`: entries trimmed from a full journal before that reader had them, with `:told` how many of them are reported. No TTL. Alarm scripts, alarmsrv."""
        return f"{self.p}alarm:figures"

    def alarm_talkers(self) -> str:
        """zset; `{rule id}|{source}` → how often it was raised. Bounded to the 1000 busiest. Alarm scripts."""
        return f"{self.p}alarm:talkers"

    def alarm_journal(self) -> str:
        """stream; one entry per transition of an alarm, until it stands in SQL; consumers keep their place in it. About `alarms.journal_max` at most. Alarm scripts."""
        return f"{self.p}alarm:journal"

    def station_clock(self) -> str:
        """hash; high_ms: the latest time that the server's clock has shown; by_ms, at_ms, told: by how much it was set back last, when, whether that was reported. No TTL. clock_watch."""
        return f"{self.p}station:clock"

    def faults(self) -> str:
        """stream; what rooms report of their own faults: code, source, level, message, state raise|clear, at. About the last 10,000. faults.report."""
        return f"{self.p}station:faults"

    def cursors(self) -> str:
        """hash; reader of a stream (faults, alarm journal) → id of the last entry whose effect it has stored. Until removed. The readers."""
        return f"{self.p}station:cursors"

    # the station itself

    def progress(self, lock: str) -> str:
        """string; JSON of who holds that lead, `lock` being its key: ages_ms (part of the role → since when it has not gone on), trouble. Six leases. Leadership."""
        return f"{self.p}station:progress:{lock.removeprefix(self.p)}"

    def health_probe(self) -> str:
        """string; the tiny write by which health finds out whether the server takes any. 60 s. StationHealth."""
        return f"{self.p}station:probe"

    def aside(self, name: str) -> str:
        """any type; what stood at `name` where an index of another type should be. 7 days. index_aside."""
        return f"{self.p}aside:{name}"

    def station_id(self) -> str:
        """string; id of the station that this Redis belongs to, which SQL knows too: a Redis without it has lost its data. No TTL. StationWatch."""
        return f"{self.p}station:id"

    def station_loss(self) -> str:
        """string; JSON station, since_ms, by: Redis has lost the data of that station. Until they are restored, or the loss is accepted. StationWatch."""
        return f"{self.p}station:loss"

    def station_restore(self) -> str:
        """string; JSON by, state, kind, done, total, started_ms, ended_ms, result: the last restore, or the one under way. Until the next. RestoreRun."""
        return f"{self.p}station:restore"

    def station_restoring(self) -> str:
        """string; token of the process that restores: two never do so at once. 30 s, renewed. restore_hold."""
        return f"{self.p}station:restoring"

    def release(self) -> str:
        """hash; the journal of an `apply` under way, or interrupted: id, note, state, started_ms, beat_ms, is_ready, total, done; `step:{n}` the requests as JSON, `was:{kind}:{id}` what stood there before (`` nothing). Until it is finished or rolled back. ReleaseJournal."""
        return f"{self.p}release:journal"

    def station_keeper(self) -> str:
        """string; id of the process that copies definitions to SQL. 10 s, renewed. Leadership."""
        return f"{self.p}station:keeper"

    def station_epoch(self) -> str:
        """string; counts the terms of station:keeper. No TTL. Leadership."""
        return f"{self.p}station:epoch"

    # notifications

    def notify_policy(self) -> str:
        """string; targets with their secrets, routes, quiet hours and escalation as JSON. No TTL. notify_policy."""
        return f"{self.p}notify:policy"

    def notify_outbox(self) -> str:
        """stream; what is to be told: one entry per message, written by the script that made the reason. Until it is planned; about `notify.outbox_max` at most. Alarm scripts, rule_commit."""
        return f"{self.p}notify:outbox"

    def notify_jobs(self) -> str:
        """hash; id of a delivery → JSON: target, messages, attempts, next try, error. Until delivered or given up. notify_plan, notify_done."""
        return f"{self.p}notify:jobs"

    def notify_due(self) -> str:
        """zset; ids of deliveries; score = ms of the next try. With the job. notify_plan, notify_done."""
        return f"{self.p}notify:due"

    def notify_told(self) -> str:
        """hash; id of an alarm → JSON: the targets that were told of it with their delivery, its step in the escalation chain. Until its end is told; swept hourly of alarms that are gone. notify_plan."""
        return f"{self.p}notify:told"

    def notify_timers(self) -> str:
        """zset; ids of alarms that nobody acknowledged yet; score = ms of the next step of the escalation chain. Until acknowledged, ended or at the end of the chain. notify_plan."""
        return f"{self.p}notify:timers"

    def notify_failed(self) -> str:
        """zset; ids of deliveries that were given up; score = ms. The last 10,000. notify_done."""
        return f"{self.p}notify:failed"

    def notify_targets(self) -> str:
        """hash; `{target}:last` → ms of the last delivery, `{target}:failing` → 1 while the last one was given up or keeps failing. Until the target is removed. notify_done, notify_fails, notify_sweep."""
        return f"{self.p}notify:targets"

    def notify_keys(self) -> str:
        """zset; idempotency keys of messages from programs; score = ms. 24 h, 100,000 at most. notify_tell."""
        return f"{self.p}notify:keys"

    def notify_leader(self) -> str:
        """string; id of the process that plans and delivers. 10 s, renewed. Leadership."""
        return f"{self.p}notify:leader"

    def notify_epoch(self) -> str:
        """string; counts the terms of notify:leader; notify_plan and notify_done compare it. No TTL. Leadership."""
        return f"{self.p}notify:epoch"

    def notify_figures(self) -> str:
        """hash; dropped: messages that were trimmed from a full outbox before they were planned; `dropped:told`: how many of them are reported. No TTL. Alarm scripts, rule_commit, the keeper."""
        return f"{self.p}notify:figures"

    def notify_log(self) -> str:
        """stream; one entry per delivery that ended: target, count, status, attempts, error. About the last 10,000. notify_done."""
        return f"{self.p}notify:log"

    # history

    def history_policy(self) -> str:
        """string; what is recorded, as JSON: batch_config, subscribe, policies, classes. No TTL. HistoryStore. Seed 001
        §4.5."""
        return f"{self.p}history:policy"

    def history_status(self) -> str:
        """hash; written, spooled, dropped, refused, lag_ms, behind, sink and more. Written once a second by the recorder. Seed 001 §4.5."""
        return f"{self.p}history:status"

    def history_refused(self) -> str:
        """stream; samples that the sink refused, and why. About the last 10,000. The recorder."""
        return f"{self.p}history:refused"

    def history_leader(self) -> str:
        """string; id of the process that records. 10 s, renewed. Leadership."""
        return f"{self.p}history:leader"

    def history_epoch(self) -> str:
        """string; counts the terms of history:leader. No TTL. Leadership."""
        return f"{self.p}history:epoch"

    # limits and figures

    def rate_second(self, task_type: str) -> str:
        """string; tasks of that type assigned in the running second. 1 s. task_assign. Seed 004 §8."""
        return f"{self.p}ratelimit:task:{task_type}"

    def rate_window(self, task_type: str, start_s: int) -> str:
        """string; tasks of that type assigned in the window that began then. 60 s, or two windows if longer. task_assign. Seed 004 §8."""
        return f"{self.p}ratelimit:task:{task_type}:{start_s}"

    def rate_slots(self, task_type: str) -> str:
        """hash; tenth of a window → tasks of that type assigned in it, the last eleven: what limits are judged by. 60 s, or two windows if longer. task_assign."""
        return f"{self.p}ratelimit:slots:{task_type}"

    def rate_config(self) -> str:
        """hash; task type → `limit:window_ms`. Until removed. TaskStore.set_rate_limit."""
        return f"{self.p}ratelimit:config"

    def metric_queue_length(self) -> str:
        """hash; high, normal, delayed, dead, parked. Written once a second by the leader. Seed 004 §7."""
        return f"{self.p}metrics:queue:length"

    def metric_worker_count(self) -> str:
        """string; live workers. Written once a second by the leader. Seed 004 §7."""
        return f"{self.p}metrics:worker:count"

    def metric_task_count(self, status: str) -> str:
        """string; how many tasks ever ended so; status in lower case, also `submitted` and `retrying`. Scripts. Seed 004 §7."""
        return f"{self.p}metrics:task:count:{status}"

    def metric_signals(self) -> str:
        """hash; `refused`: how many messages of the broker could not be let in. No TTL, one field. A worker that hosts a cycle."""
        return f"{self.p}metrics:signals"

    def metric_cycles(self) -> str:
        """hash; how many cycles of flows ever ended so, by status; `ms`: how long all of them took. No TTL, five fields. node_commit."""
        return f"{self.p}metrics:cycles"

    # channels (pub/sub, nothing is stored)

    def events(self) -> str:
        """channel; JSON `event, task_id, task_type, timestamp` for each transition. Seed 004 §6."""
        return f"{self.channel_prefix}task:events"

    def flow_events(self) -> str:
        """channel; JSON `event, flow_id, cycle, node_id, status, timestamp` for each change of a cycle or a node."""
        return f"{self.channel_prefix}flow:events"

    def command_events(self) -> str:
        """channel; JSON `event, command_id, address, status, timestamp` for each transition of a command."""
        return f"{self.channel_prefix}cmd:events"

    def alarm_events(self) -> str:
        """channel; JSON `event, alarm_id, rule_id, source, level, status, timestamp` for each transition of an alarm."""
        return f"{self.channel_prefix}alarm:events"

    def reply(self, client_id: str) -> str:
        """channel; id of a task that ended and that this client waits for."""
        return f"{self.p}task:reply:{client_id}"

    def control(self, worker_id: str) -> str:
        """channel; `cancel:{task id}` for a worker."""
        return f"{self.p}worker:{worker_id}:control"
