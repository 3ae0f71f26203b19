// Every word that the page shows, in English and Chinese. A word missing in one language shows its English form.

const WORDS = {
  en: {
    skip: "Skip to content", apiLink: "API", metrics: "Metrics", healthLink: "Health",
    health: "Health", queues: "Queues", throughput: "Throughput", workers: "Workers", tasks: "Recent tasks",
    ok: "ok", degraded: "degraded", down: "down", unknown: "unknown", off: "off",
    redis: "Redis", scheduler: "Scheduler", worker: "Worker", sql: "SQL", api: "API", broker: "RabbitMQ",
    comsrv: "Devices", modsrv: "Models", rulesrv: "Rules", alarmsrv: "Alarms", notify: "Notifications", hissrv: "History", store: "Store",
    trend: "Trend", trendAddress: "Address of a point", trendRange: "How long", trendOf: "{0}: between {1} and {2}, newest {3} {4}",
    noTrend: "Press the address of a point, or type one.", noSamples: "Nothing was recorded in this time.",
    trendKept: "what lies before {0} was removed",
    high: "high", normal: "normal", delayed: "delayed", dead: "dead", paused: "paused",
    perSecond: "finished / s", peak: "peak", lastMinutes: "last 2 minutes",
    id: "ID", name: "Name", status: "Status", load: "Load", running: "Running", queued: "Queued", types: "Types",
    labels: "Labels", heartbeat: "Heartbeat", address: "Address", type: "Type", priority: "Priority",
    attempt: "Attempt", workerId: "Worker", created: "Created", duration: "Duration", outcome: "Progress / error",
    noWorkers: "No worker is registered.", noTasks: "No tasks yet. Try: tradewind task submit echo --args '[\"hi\"]'",
    noQueues: "No queues.", noHealth: "No health report.",
    ago: "{0} ago", updated: "updated {0}", connecting: "Connecting to the station…",
    stale: "Connection lost. Showing data of {0} ({1} ago). Reconnecting…",
    neverSeen: "The station does not answer. Trying again…",
    rows: "{0} shown", rowsOf: "{0} of {1} shown",
    notKnown: "Not known: the station has not been able to tell yet.", asOf: "as of {0} ago",
    notKnownSince: "Not known since {0}; there was nothing to show then.", "s:unknown": "unknown",
    flows: "Flows", flow: "Flow", cycles: "Cycles", graph: "Graph", nodes: "Nodes", why: "Why it stands so",
    signals: "Signals", logs: "Logs", cycle: "Cycle", node: "Node", when: "When", lastCycle: "Last cycle", next: "Next",
    started: "Started", actions: "Actions", trigger: "Trigger", from: "From", to: "To", payload: "Payload", time: "Time",
    level: "Level", message: "Message", handle: "Handle", every: "every {0}", once: "once", manual: "when asked",
    inTime: "in {0}", now: "now", stoppedBy: "stopped by {0}", outside: "outside",
    start: "Start", pause: "Pause", resume: "Resume", drain: "Drain", stop: "Stop", run: "Run now", delete: "Delete",
    again: "Run again", close: "Close", latest: "Newest cycle", approve: "Approve", reject: "Reject", give: "Give input",
    terminate: "Terminate", yes: "Yes", no: "Cancel",
    askStop: "Stop the flow {0}? Its running cycles are stopped, too.",
    askDelete: "Delete the flow {0} with its cycles, logs and signals? This cannot be undone.",
    askStopCycle: "Stop cycle {0}? The nodes that wait end now, running ones are asked to stop.",
    askTerminate: "Terminate the node {0}? What needs it is skipped.",
    askApprove: "Approve {0}?", askReject: "Reject {0}?", askInput: "What does {0} get?",
    yourName: "Your name", decisionNote: "Note", jsonValue: "Value as JSON", badJson: "The value is not JSON.",
    given: "given", askedToStop: "asked to stop", cycleStarted: "{0}: cycle {1} started",
    noFlows: "No flows yet. Try: tradewind flow register FILE --start", noCycles: "No cycle yet.",
    noSignals: "No signals.", noLogs: "No log lines.", tooBig: "More than {0} nodes are not drawn; see the table.",
    points: "Points", channels: "Channels", models: "Models", commands: "Commands", value: "Value", values: "Values",
    substituted: "{0} substituted: {1}", deviceSays: "device: {0}",
    unit: "Unit", quality: "Quality", age: "Age", protocol: "Protocol", pointCount: "Points", lastPoll: "Last heard",
    pollTime: "Poll takes", failures: "Failures", missed: "Missed", error: "Error", title: "Title", template: "Template",
    control: "Control", who: "Who", reason: "Reason", set: "Set", send: "Send", goOn: "Go on", reload: "Reload",
    cancelCommand: "Cancel command", askValue: "Which value for {0}?",
    askSend: "Send {0} to {1}? This changes something at a device.",
    askCancel: "Cancel the command to {0}?", commandSent: "{0}: {1} sent, {2}", notANumber: "The value is not a number.",
    searchPoints: "Search all points: part of an address or name", nothingFound: "Nothing found.",
    noPoints: "No values yet.", noModels: "No models yet. Try: tradewind model put FILE",
    noChannels: "No channels yet. Try: tradewind channel put FILE", noCommands: "No commands in the last 24 hours.",
    alarms: "Alarms", rules: "Rules", alarm: "Alarm", rule: "Rule", source: "Source", valueLimit: "Value (limit)", count: "Count",
    since: "Since", acknowledge: "Acknowledge", shelve: "Shelve", unshelve: "Unshelve", resolve: "Resolve",
    allLevels: "All levels", allOpen: "All open", ackAll: "Acknowledge all shown", minutes: "Minutes",
    "ask:acknowledge": "Acknowledge “{0}”?", "ask:shelve": "Shelve “{0}” for how long?",
    "ask:unshelve": "Show “{0}” again?", "ask:resolve": "Resolve “{0}”?",
    askAckAll: "Acknowledge {0} alarms?", ackedAll: "{0} acknowledged.", ackedBy: "acknowledged by {0}",
    shelvedUntil: "shelved until {0}", causedBy: "suppressed by {0}",
    flood: "Alarms come as a flood since {0}: {1} within minutes. Notifications are grouped. Look for the cause first.",
    noAlarms: "No open alarms.", noRules: "No rules yet. Try: tradewind rule create FILE",
    enabled: "Enabled", fired: "Fired", lastFired: "Last fired", test: "Test", enable: "Enable", disable: "Disable",
    isTrue: "true", isFalse: "false", isYes: "yes", isNo: "no", conditions: "Conditions", wouldDo: "Would do now", nothing: "nothing",
    testOf: "Test of {0}: nothing is done",
    "s:triggered": "active", "s:none": "no value", "s:running": "running", "s:paused": "paused", "s:open": "open",
  },
  zh: {
    skip: "跳到内容", apiLink: "接口文档", metrics: "指标", healthLink: "健康",
    health: "健康状态", queues: "队列", throughput: "吞吐量", workers: "工作者", tasks: "最近任务",
    ok: "正常", degraded: "降级", down: "停止", unknown: "未知", off: "未用",
    scheduler: "调度器", worker: "工作者", comsrv: "设备", modsrv: "模型", rulesrv: "规则", alarmsrv: "告警", notify: "通知", hissrv: "历史", store: "数据",
    trend: "趋势", trendAddress: "点的地址", trendRange: "时间范围", trendOf: "{0}：{1} 至 {2}，最新 {3} {4}",
    noTrend: "点击某个点的地址，或输入一个地址。", noSamples: "这段时间没有记录。",
    trendKept: "{0} 之前的数据已按保留期删除",
    high: "高优先级", normal: "普通", delayed: "延迟", dead: "死信", paused: "已暂停",
    perSecond: "完成 / 秒", peak: "峰值", lastMinutes: "最近 2 分钟",
    id: "编号", name: "名称", status: "状态", load: "负载", running: "运行中", queued: "排队", types: "类型",
    labels: "标签", heartbeat: "心跳", address: "地址", type: "类型", priority: "优先级",
    attempt: "尝试", workerId: "工作者", created: "创建", duration: "耗时", outcome: "进度 / 错误",
    noWorkers: "没有已注册的工作者。", noTasks: "还没有任务。试试：tradewind task submit echo --args '[\"hi\"]'",
    noQueues: "没有队列。", noHealth: "没有健康报告。",
    ago: "{0} 前", updated: "更新于 {0}", connecting: "正在连接…",
    stale: "连接已断开。显示的是 {0} 的数据（{1} 前）。正在重连…",
    neverSeen: "站点没有响应，正在重试…",
    rows: "显示 {0} 条", rowsOf: "显示 {1} 条中的 {0} 条",
    notKnown: "未知：站点尚无法答复。", asOf: "{0} 前的数据",
    notKnownSince: "已有 {0} 未知；当时没有内容。", "s:unknown": "未知",
    flows: "流程", flow: "流程", cycles: "周期", graph: "流程图", nodes: "节点", why: "状态原因",
    signals: "信号", logs: "日志", cycle: "周期", node: "节点", when: "时间表", lastCycle: "最近周期", next: "下次",
    started: "开始", actions: "操作", trigger: "触发", from: "来自", to: "到", payload: "内容", time: "时间",
    level: "级别", message: "消息", handle: "句柄", every: "每 {0}", once: "一次", manual: "手动",
    inTime: "{0} 后", now: "现在", stoppedBy: "由 {0} 停止", outside: "外部",
    start: "启动", pause: "暂停", resume: "恢复", drain: "排空", stop: "停止", run: "立即运行", delete: "删除",
    again: "再次运行", close: "关闭", latest: "最新周期", approve: "批准", reject: "拒绝", give: "提供输入",
    terminate: "终止", yes: "确定", no: "取消",
    askStop: "停止流程 {0}？正在运行的周期也会停止。",
    askDelete: "删除流程 {0} 及其周期、日志和信号？此操作无法撤销。",
    askStopCycle: "停止周期 {0}？等待中的节点立即结束，运行中的节点被要求停止。",
    askTerminate: "终止节点 {0}？依赖它的节点将被跳过。",
    askApprove: "批准 {0}？", askReject: "拒绝 {0}？", askInput: "给 {0} 什么？",
    yourName: "您的姓名", decisionNote: "备注", jsonValue: "JSON 值", badJson: "该值不是 JSON。",
    given: "已提供", askedToStop: "已要求停止", cycleStarted: "{0}：周期 {1} 已开始",
    noFlows: "还没有流程。试试：tradewind flow register FILE --start", noCycles: "还没有周期。",
    noSignals: "没有信号。", noLogs: "没有日志。", tooBig: "超过 {0} 个节点不绘图，请看表格。",
    points: "点位", channels: "通道", models: "模型", commands: "控制命令", value: "值", values: "值",
    substituted: "{0} 个点被人工替代：{1}", deviceSays: "设备值：{0}",
    unit: "单位", quality: "质量", age: "时效", protocol: "协议", pointCount: "点数", lastPoll: "最近数据",
    pollTime: "轮询耗时", failures: "失败", missed: "错过", error: "错误", title: "标题", template: "模板",
    control: "控制量", who: "操作人", reason: "原因", set: "设置", send: "发送", goOn: "继续", reload: "重新加载",
    cancelCommand: "取消命令", askValue: "{0} 设为多少？",
    askSend: "向 {1} 发送 {0}？这会改变设备。",
    askCancel: "取消发往 {0} 的命令？", commandSent: "{0}：已发送 {1}，{2}", notANumber: "该值不是数字。",
    searchPoints: "搜索所有点位：地址或名称的一部分", nothingFound: "没有找到。",
    noPoints: "还没有值。", noModels: "还没有模型。试试：tradewind model put FILE",
    noChannels: "还没有通道。试试：tradewind channel put FILE", noCommands: "最近 24 小时没有命令。",
    alarms: "告警", rules: "规则", alarm: "告警", rule: "规则", source: "来源", valueLimit: "值（限值）", count: "次数",
    since: "持续", acknowledge: "确认", shelve: "搁置", unshelve: "取消搁置", resolve: "解除",
    allLevels: "所有级别", allOpen: "所有未结束", ackAll: "确认显示的全部", minutes: "分钟",
    "ask:acknowledge": "确认“{0}”？", "ask:shelve": "“{0}”搁置多久？", "ask:unshelve": "重新显示“{0}”？", "ask:resolve": "解除“{0}”？",
    askAckAll: "确认 {0} 条告警？", ackedAll: "已确认 {0} 条。", ackedBy: "由 {0} 确认",
    shelvedUntil: "搁置到 {0}", causedBy: "被 {0} 抑制",
    flood: "自 {0} 起告警泛滥：几分钟内 {1} 条。通知已合并。请先查找原因。",
    noAlarms: "没有未结束的告警。", noRules: "还没有规则。试试：tradewind rule create FILE",
    enabled: "启用", fired: "触发次数", lastFired: "最近触发", test: "测试", enable: "启用", disable: "停用",
    isTrue: "成立", isFalse: "不成立", isYes: "是", isNo: "否", conditions: "条件", wouldDo: "现在会执行", nothing: "无",
    testOf: "测试 {0}：不执行任何动作",
    "s:Critical": "紧急", "s:High": "高", "s:Medium": "中", "s:Low": "低", "s:Info": "提示",
    "s:New": "新", "s:Acknowledged": "已确认", "s:Escalated": "已升级", "s:Suppressed": "已抑制", "s:Resolved": "已解除", "s:Closed": "已关闭",
    "s:triggered": "已触发", "s:inactive": "未触发", "s:waiting": "等待首值", "s:stale": "过期", "s:missing": "无值",
    "s:none": "无值", "s:good": "良好", "s:uncertain": "不确定", "s:substituted": "人工替代", "s:bad": "坏", "s:unattended": "无人轮询", "s:disabled": "已停用",
    "s:pushed": "外部推送", "s:reloading": "重新加载中", "s:executing": "执行中", "s:success": "成功", "s:cancelled": "已取消",
    "s:faulty": "有误", "s:off": "停用",
    "s:registered": "已注册", "s:running": "运行中", "s:paused": "已暂停", "s:draining": "排空中", "s:stopped": "已停止",
    "s:completed": "已完成", "s:failed": "失败", "s:timeout": "超时", "s:deleting": "删除中", "s:deleted": "已删除",
    "s:pending": "等待", "s:awaiting_input": "等待输入", "s:skipped": "已跳过", "s:terminated": "已终止", "s:open": "未完成",
    "s:outside": "外部",
    PENDING: "等待", QUEUED: "排队", ASSIGNED: "已分配", PROCESSING: "执行中", RETRYING: "重试中", SUCCESS: "成功",
    FAILED: "失败", CANCELLED: "已取消", TIMEOUT: "超时", DEAD: "死信",
    online: "在线", idle: "空闲", busy: "忙碌", draining: "排空中", offline: "离线", active: "活动",
  },
};

const STORED = "tradewind.language";

function preferred() {
  try {
    const stored = localStorage.getItem(STORED);
    if (stored in WORDS) return stored;
  } catch { /* storage may be forbidden; the browser's language decides then */ }
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

let current = preferred();

export const language = () => current;

export function toggleLanguage() {
  current = current === "en" ? "zh" : "en";
  try { localStorage.setItem(STORED, current); } catch { /* the choice then lasts until reload */ }
}

/** The word for `key`, `{0}` and `{1}` filled in; an unknown key is shown as it is. */
export function word(key, ...values) {
  const text = WORDS[current][key] ?? WORDS.en[key] ?? String(key);
  return text.replace(/\{(\d)\}/g, (_, index) => values[index]);
}

/** The word for a state of a flow, cycle, node, task or worker; one that has no word of its own is shown as it is. */
export function stateWord(status) {
  return WORDS[current][`s:${status}`] ?? WORDS[current][status] ?? String(status ?? "").replaceAll("_", " ");
}
