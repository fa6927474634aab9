"""A worker that shares no code with Stria: written from docs/protocol.md and the schemas, to show that they suffice. Its engine is a parrot: the
answer's token number i is the prompt's token number i modulo the prompt's length.

foreign_worker.py GENERATED SCHEDULER TELEMETRY TIERS NAME [SECRET_KEY SCHEDULER_KEY CONTROLLER_KEY]
GENERATED: where `flatc --python --gen-object-api proto/*.fbs` wrote. Each endpoint is tcp://HOST:PORT.
"""
import signal
import sys
import time

import flatbuffers
import zmq

generated, scheduler_at, telemetry_at, tiers_at, name, *keys = sys.argv[1:]
sys.path.insert(0, generated)
from stria.wire import (CanaryFrame, KvUsage, LayerBytes, LayerReading, SequenceFrame, SequenceMessage, SequenceName, SequenceOutput,  # noqa: E402
                        StepOutputs, TierAck, TierFrame, TierHello, TierMessage, TokenLogprob, WorkerHello, WorkerStatus)

LAYERS, MODEL, POOL = 3, "5a" * 32, 1 << 30
STEP, TICK, RESEND = 0.01, 1.0, 1.0  # seconds
LENGTH, CANCELLED, ERROR, MOVED = 2, 3, 5, 6
incarnation = (int(time.time() * 1000) << 12) & (1 << 53) - 1


def make(module, **fields):
    """An object of a generated module, Module.ModuleT."""
    result = getattr(module, module.__name__.rsplit(".", 1)[1] + "T")()
    for field, value in fields.items():
        assert hasattr(result, field), field
        setattr(result, field, value)
    return result


def pack(root, identifier: bytes) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(root.Pack(builder), identifier)
    return bytes(builder.Output())


def connect(context, kind, address, server_key):
    s = context.socket(kind)
    s.linger, s.maxmsgsize, s.sndhwm, s.rcvhwm = 0, 16 << 20, 4096, 4096
    s.heartbeat_ivl, s.heartbeat_timeout = 1000, 3000
    if kind == zmq.DEALER:
        s.immediate = True
        s.setsockopt(zmq.ROUTING_ID, f"{name}#{incarnation}".encode())
    if keys:
        s.curve_secretkey = keys[0].encode()
        s.curve_publickey = zmq.curve_public(keys[0].encode())
        s.curve_serverkey = server_key.encode()
    s.connect(address)
    return s


def send(socket, frame: bytes) -> bool:
    try:
        socket.send(frame, zmq.NOBLOCK)
        return True
    except zmq.Again:
        return False


def received(socket):
    while True:
        try:
            yield socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return


class Sequence:
    def __init__(self, start):
        self.prompt = [int(token) for token in start.prompt]
        self.original = len(self.prompt) - start.delivered
        self.acknowledged = self.made = start.delivered
        self.most = start.maxNewTokens
        self.finish, self.message, self.sent = 0, None, 0.0
        if start.keepTokens or (not start.followTiers and any(layer.kind for layer in start.layers)):
            self.finish, self.message = ERROR, "a parrot neither evicts nor inherits"


class Worker:
    def __init__(self):
        context = zmq.Context()
        scheduler_key, controller_key = keys[1:] if keys else (None, None)
        self.scheduler = connect(context, zmq.DEALER, scheduler_at, scheduler_key)
        self.tiers = connect(context, zmq.DEALER, tiers_at, controller_key)
        self.telemetry = connect(context, zmq.PUB, telemetry_at, controller_key)
        self.sequences, self.ended = {}, set()
        self.following = self.epoch = self.frames = self.step = 0
        self.bits, self.draining, self.next_tick = [16] * LAYERS, False, 0.0

    def to_scheduler(self, kind, message) -> bool:
        return send(self.scheduler, pack(make(SequenceFrame, messageType=getattr(SequenceMessage.SequenceMessage, kind), message=message), b"SSQ1"))

    def to_controller(self, kind, message) -> bool:
        return send(self.tiers, pack(make(TierFrame, messageType=getattr(TierMessage.TierMessage, kind), message=message), b"STI1"))

    def tick(self):
        who = {"worker": name, "incarnation": incarnation}
        page = [4096, 4096, 4096, 4096]  # a parrot's pages cost the same at every width
        self.to_scheduler("WorkerHello", make(
            WorkerHello, **who, model=MODEL, modelName="parrot", http="nowhere:0", vocab=1 << 20, maxContext=4096, maxSequences=8, poolBytes=POOL,
            layers=[make(LayerBytes, keyPage=page, valuePage=page, ring=4096) for _ in range(LAYERS)]))
        self.to_scheduler("WorkerStatus", make(WorkerStatus, **who, scheduler=self.following, poolBytes=POOL, running=len(self.sequences),
                                               epoch=self.epoch, keyBits=self.bits, valueBits=self.bits, draining=self.draining))
        self.to_controller("TierHello", make(TierHello, **who, model=MODEL, modelName="parrot", layers=LAYERS, epoch=self.epoch, http="nowhere:0"))
        self.frames += 1  # a parrot's attention never drifts
        send(self.telemetry, pack(make(
            CanaryFrame, **who, model=MODEL, number=self.frames, epoch=self.epoch, step=self.step, sequences=1, tokens=64,
            readings=[make(LayerReading, layer=layer, kl=[0.001, 0.0001, 0.00001]) for layer in range(LAYERS)]), b"SCA1"))

    def take_commands(self):
        for frame in received(self.scheduler):
            root = make(SequenceFrame)
            root._UnPack(SequenceFrame.SequenceFrame.GetRootAs(frame, 0))
            message = root.message
            kind = type(message).__name__.removesuffix("T")
            if kind == "SchedulerHello":
                if message.incarnation != self.following:
                    self.sequences, self.ended, self.following = {}, set(), message.incarnation
                continue
            if not self.following:
                continue
            key = (message.name.id, message.name.attempt)
            running = self.sequences.get(key)
            if kind == "StartSequence" and running is None and key not in self.ended:
                self.sequences[key] = Sequence(message)
                if self.draining:
                    self.sequences[key].finish = MOVED
            elif kind == "CancelSequence" and key not in self.ended:
                running = self.sequences.setdefault(key, running or Sequence(make_start()))
                running.finish = running.finish or CANCELLED
            elif kind == "AckSequence" and running is not None:
                running.acknowledged = max(running.acknowledged, message.tokens)
                if message.finished and running.finish:
                    del self.sequences[key]
                    self.ended.add(key)

    def take_tiers(self):
        for frame in received(self.tiers):
            vector = make(TierFrame)
            vector._UnPack(TierFrame.TierFrame.GetRootAs(frame, 0))
            if vector.messageType != TierMessage.TierMessage.TierVector:
                continue  # somebody asks what the cache holds: a parrot has none
            vector = vector.message
            if vector.model != MODEL.encode() or len(vector.layers) != LAYERS:
                continue
            if vector.epoch > self.epoch:
                self.epoch, self.bits = vector.epoch, [layer.keys for layer in vector.layers]
            self.to_controller("TierAck", make(TierAck, worker=name, incarnation=incarnation, epoch=self.epoch))

    def generate(self, now):
        outputs = []
        for (identity, attempt), s in self.sequences.items():
            news = not s.finish
            if news:
                s.made += 1
                s.finish = LENGTH if s.made >= s.most else 0
            if not news and now - s.sent < RESEND:
                continue
            # Everything that is not acknowledged: a frame that was lost before is made up for.
            s.sent = now
            tokens = [make(TokenLogprob, token=s.prompt[i % s.original]) for i in range(s.acknowledged, s.made)]
            kv = make(KvUsage, bytes=4096, tokens=s.made, payloadBits=16.0, bitsPerElement=16.0, fp16Bytes=4096) if s.finish else None
            outputs.append(make(SequenceOutput, name=make(SequenceName, id=identity, attempt=attempt), firstIndex=s.acknowledged, tokens=tokens,
                                finish=s.finish, message=s.message, kv=kv, epoch=self.epoch))
        if outputs:
            self.step += 1
            self.to_scheduler("StepOutputs", make(StepOutputs, worker=name, incarnation=incarnation, outputs=outputs))

    def run(self):
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "draining", True))
        while not (self.draining and not self.sequences):
            now = time.monotonic()
            if now >= self.next_tick:
                self.next_tick = now + TICK
                self.tick()
            self.take_commands()
            self.take_tiers()
            self.generate(now)
            time.sleep(STEP)  # the engine's step
        self.tick()


def make_start():
    from stria.wire import StartSequence
    return make(StartSequence, prompt=[0], delivered=0, layers=[])


Worker().run()
