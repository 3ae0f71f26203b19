// Who sits at this browser, as far as they have said so.

const NAME = "tradewind.name";

export function storedName() {
  try { return localStorage.getItem(NAME) ?? ""; } catch { return ""; }
}

export function storeName(name) {
  try { localStorage.setItem(NAME, name); } catch { /* then it is asked for again */ }
}
