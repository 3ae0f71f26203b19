// Every word that the page shows, in English and Chinese. A word missing in one language shows its English form.

const WORDS = {
  en: {
    skip: "Skip to content", apiLink: "API", metrics: "Metrics", healthLink: "Health",
    health: "Health", queues: "Queues", throughput: "Throughput", workers: "Workers", tasks: "Recent tasks",
    ok: "ok", degraded: "degraded", down: "down", unknown: "unknown",
    redis: "Redis", scheduler: "Scheduler", worker: "Worker", sql: "SQL", api: "API",
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
    rows: "{0} shown",
  },
  zh: {
    skip: "跳到内容", apiLink: "接口文档", metrics: "指标", healthLink: "健康",
    health: "健康状态", queues: "队列", throughput: "吞吐量", workers: "工作者", tasks: "最近任务",
    ok: "正常", degraded: "降级", down: "停止", unknown: "未知",
    scheduler: "调度器", worker: "工作者",
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
    rows: "显示 {0} 条",
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
