// A WebSocket server of the package ws that sends every message back. It prints
// its port.
import { WebSocketServer } from "ws";

const server = new WebSocketServer({
  host: "127.0.0.1",
  port: 0,
  maxPayload: 64 << 20,
  perMessageDeflate: { threshold: 0 },
  handleProtocols: (offered) => (offered.has("b") ? "b" : false),
});
server.on("listening", () => console.log(server.address().port));
server.on("connection", (socket) => {
  socket.on("error", () => {}); // the peer's doing; ws closes by itself
  socket.on("message", (data, binary) => {
    const text = binary ? "" : data.toString();
    if (text.startsWith("close ")) {
      const [, code, reason] = text.split(" ");
      socket.close(Number(code), reason);
    } else if (text === "terminate") {
      socket.terminate();
    } else if (text === "ping") {
      socket.once("pong", (payload) => socket.send(`pong ${payload}`));
      socket.ping("are you there?");
    } else {
      socket.send(data, { binary });
    }
  });
});
