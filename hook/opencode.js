// The gate of Countersign for OpenCode. `countersign hook install opencode` writes this file and
// `countersign hook uninstall opencode` removes it; changes are lost.
import { spawn } from "node:child_process"

const command = "COMMAND"
const limit = 60_000 // milliseconds; the gate itself answers sooner

// ask runs the gate once. Whatever goes wrong is a refusal.
function ask(input) {
  return new Promise((resolve) => {
    const refuse = (why) => resolve({ decision: "deny", reason: "Countersign refused this call: the gate " + why })
    try {
      const gate = spawn("/bin/sh", ["-c", "exec " + command], { stdio: ["pipe", "pipe", "ignore"], timeout: limit, killSignal: "SIGKILL" })
      const output = []
      gate.on("error", () => refuse("cannot be run"))
      gate.stdin.on("error", () => {}) // its end is noticed below
      gate.stdout.on("data", (bytes) => output.push(bytes))
      gate.on("close", (code) => {
        try {
          const answer = JSON.parse(Buffer.concat(output).toString())
          if (code === 0 && (answer.decision === "allow" || answer.reason)) return resolve(answer)
        } catch {}
        refuse("gave no answer")
      })
      gate.stdin.end(JSON.stringify(input))
    } catch {
      refuse("cannot be asked")
    }
  })
}

export const Countersign = async ({ directory }) => {
  const loaded = process.env.COUNTERSIGN_PLUGIN_LOADED // set by `countersign hook doctor opencode`
  if (loaded) console.error(loaded)
  return {
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      const answer = await ask({ event: "tool.execute.before", directory, tool, sessionID, callID, args })
      if (answer.decision !== "allow") throw new Error(answer.reason)
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, result) => {
      await ask({ event: "tool.execute.after", directory, tool, sessionID, callID, args, exit: result?.metadata?.exit })
    },
    "chat.message": async ({ sessionID, model }, { parts }) => {
      const prompt = parts.map((part) => part.text ?? "").join("")
      await ask({ event: "chat.message", directory, sessionID, model: model?.modelID, prompt })
    },
    event: async ({ event }) => {
      if (event.type === "session.created" || event.type === "session.deleted") {
        const session = event.properties?.info
        await ask({ event: event.type, directory, sessionID: session?.id, parentID: session?.parentID })
      }
      if (event.type === "session.idle" || event.type === "session.error") {
        await ask({ event: event.type, directory, sessionID: event.properties?.sessionID, error: event.properties?.error?.name })
      }
    },
  }
}
