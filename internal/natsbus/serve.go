package natsbus

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// Handler answers one call of a node. Many goroutines call a Handler at once. Calls of one node may arrive in the
// wrong order, and may arrive twice. If the handler returns an error, the node gets the error's code and text. For a
// message (Conn.Send), the server drops the handler's answer. The context ends when the node stops waiting, or when
// the server stops. The context contains the call's tutti.Turn, except for operations in Light.
type Handler func(ctx context.Context, from tutti.NodeKey, op string, payload []byte) ([]byte, error)

// ServeOptions are the settings of Serve.
type ServeOptions struct {
	Handler  Handler
	SpoolDir string // directory for content above 128 KiB. Serve empties the directory at its start and end
	// Serve calls Ready when it begins to receive calls. May be nil.
	Ready func()
	// Serve calls Denied each time that a node tries an action without permission. Denied must not block. May be nil.
	Denied func(from tutti.NodeKey, what string)
	// Serve calls Excess for each message of a node that has already reached its limit of simultaneous
	// calls. Serve passes the message's bytes to Excess. If Excess returns true, Serve does not answer
	// the message. Excess must not block. May be nil.
	Excess func(from tutti.NodeKey, bytes int) (out bool)
	Logger *slog.Logger // may be nil
	// Concurrency is how many handlers run at once. 0 means 64.
	Concurrency int
	// Light are the names of operations that do not wait for other calls. These operations only report
	// something, and their handlers are quick. Serve runs one light operation of a node at a time. If
	// the node sends another light operation meanwhile, Serve drops that operation.
	Light []string
}

const (
	concurrency       = 64
	concurrencyOfNode = 16
	// concurrencyLarge is the limit of simultaneous calls with content in chunks, because these calls need much
	// memory.
	concurrencyLarge = 4
	// maxTries is how often a node may repeat a call with the same stored chunks. After maxTries calls, the node must
	// send the content again.
	maxTries         = 8
	concurrencyLight = 16
	// againPause is how long the server delays an answer that asks the node to call again.
	againPause = 250 * time.Millisecond
)

// server is the state of one call of Serve.
type server struct {
	ServeOptions
	nc      *nats.Conn
	spool   *spool
	turns   *turns
	large   *turns // calls with content in chunks wait here, so they do not delay other calls
	light   chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	ofNode  map[tutti.NodeKey]int  // number of calls that wait or run
	telling map[tutti.NodeKey]bool // nodes with a running light call
}

// Serve answers calls of nodes until ctx ends. nc is the server's connection to the account of the nodes. Serve
// returns after the last handler has returned. Serve answers only calls whose reply address is in the sender's own
// inbox.
func Serve(ctx context.Context, nc *nats.Conn, o ServeOptions) error {
	if o.Concurrency == 0 {
		o.Concurrency = concurrency
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	sp, err := newSpool(o.SpoolDir, time.Now)
	if err != nil {
		return err
	}
	defer sp.close() //nolint:errcheck // emptied at the next start
	s := &server{
		ServeOptions: o, nc: nc, spool: sp,
		turns: newTurns(o.Concurrency), large: newTurns(concurrencyLarge), light: make(chan struct{}, concurrencyLight),
		ofNode: map[tutti.NodeKey]int{}, telling: map[tutti.NodeKey]bool{},
	}
	var light []*nats.Subscription
	for _, op := range o.Light {
		sub, err := s.subscribe("n.*." + op)
		if err != nil {
			return err
		}
		defer sub.Unsubscribe() //nolint:errcheck // the connection may be gone
		light = append(light, sub)
	}
	all, err := s.subscribe("n.>")
	if err != nil {
		return err
	}
	defer all.Unsubscribe() //nolint:errcheck // the connection may be gone
	if err := flush(ctx, nc); err != nil {
		return wrap(err, "serve nodes")
	}
	if o.Ready != nil {
		o.Ready()
	}
	defer s.running.Wait()
	group, ctx := errgroup.WithContext(ctx)
	for _, sub := range light {
		group.Go(func() error { return s.receive(ctx, sub, s.acceptLight) })
	}
	group.Go(func() error { return s.receive(ctx, all, s.accept) })
	return group.Wait()
}

func (s *server) subscribe(subject string) (*nats.Subscription, error) {
	sub, err := s.nc.SubscribeSync(subject)
	return sub, wrap(err, "serve nodes")
}

// The method `receive` passes each message to the function `accept` until ctx ends.
func (s *server) receive(ctx context.Context, sub *nats.Subscription, accept func(context.Context, *nats.Msg)) error {
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		if err == nats.ErrSlowConsumer { //nolint:errorlint // a sentinel of the client, never wrapped
			s.Logger.Warn("calls of nodes were dropped: the server is too slow")
			continue
		}
		if err != nil {
			return wrap(err, "serve nodes")
		}
		accept(ctx, msg)
	}
}

// acceptLight runs the handler of a light operation at once, without waiting for other calls.
func (s *server) acceptLight(ctx context.Context, msg *nats.Msg) {
	key, op, ok := senderOf(msg.Subject)
	if !ok || msg.Reply != "" {
		return
	}
	if !s.mayTell(key) {
		s.tooMuch(key, msg)
		return
	}
	select {
	case s.light <- struct{}{}:
	case <-ctx.Done():
		s.told(key)
		return
	}
	s.running.Go(func() {
		defer func() { <-s.light; s.told(key) }()
		ctx, cancel := context.WithTimeout(wire.WithTicket(ctx, msg.Header.Get(headerTicket)), defaultTimeout)
		defer cancel()
		_, _ = s.handle(ctx, key, op, msg.Data) // the node expects no answer
	})
}

func (s *server) mayTell(key tutti.NodeKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	may := !s.telling[key]
	s.telling[key] = true
	return may
}

func (s *server) told(key tutti.NodeKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.telling, key)
}

// accept checks a message. accept starts the handler when it is the node's turn.
func (s *server) accept(ctx context.Context, msg *nats.Msg) {
	key, op, ok := senderOf(msg.Subject)
	switch {
	case ok && msg.Reply == "" && slices.Contains(s.Light, op):
		return // nothing to do here, because acceptLight has got the same message
	case !ok:
		s.deny(key, "subject "+msg.Subject)
		s.tooMuch(key, msg)
		return
	case msg.Reply != "" && !ownInbox(key, msg.Reply):
		s.deny(key, "an answer to "+msg.Reply)
		s.tooMuch(key, msg)
		return
	case !s.enter(key):
		if !s.tooMuch(key, msg) {
			s.answer(msg, failure(tutti.Errorf(tutti.CodeUnavailable, "%s: more than %d calls of this node at once; try again", op, concurrencyOfNode)))
		}
		return
	}
	ctx, cancel := context.WithTimeout(wire.WithTicket(ctx, msg.Header.Get(headerTicket)), timeoutOf(msg.Header))
	turns := s.turnsOf(op, msg.Header)
	turns.enter(key, func() {
		s.running.Go(func() {
			defer func() { cancel(); s.leave(key) }()
			ctx, turn := tutti.WithTurn(ctx, turns.leave)
			defer turn.End() // a second call of End does nothing
			var answer *nats.Msg
			if ctx.Err() == nil { // if ctx has ended, the node no longer waits for an answer
				answer = s.dispatch(ctx, key, op, msg)
			}
			// other calls may begin now. The answer needs little memory, because large content is in the spool
			turn.End()
			if answer != nil {
				s.hold(ctx, answer)
				s.answer(msg, answer)
			}
		})
	})
}

// turnsOf returns the queue in which a call must wait for its turn.
func (s *server) turnsOf(op string, header nats.Header) *turns {
	if header.Get(headerParcel) == "" || op == opPut || op == opGet || op == opDone {
		return s.turns
	}
	return s.large
}

// The method `hold` delays an answer that asks the node to call again. Without the delay, a node that calls again at
// once would keep the server busy. During the delay, the call counts as one of the node's calls, but occupies no
// handler.
func (s *server) hold(ctx context.Context, answer *nats.Msg) {
	if tutti.Code(answer.Header.Get(headerStatus)) != tutti.CodeUnavailable {
		return
	}
	timer := time.NewTimer(againPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (s *server) dispatch(ctx context.Context, key tutti.NodeKey, op string, msg *nats.Msg) *nats.Msg {
	p, err := parcelOf(msg.Header)
	if err != nil {
		return failure(err)
	}
	switch {
	case op == opPut:
		return s.put(key, p, msg)
	case op == opGet:
		return s.get(key, p, msg)
	case op == opDone:
		s.spool.drop(key, p.id)
		return success(nil)
	case validateOp(op) != nil:
		s.deny(key, "operation "+op)
		return failure(validateOp(op))
	case p.id != "":
		return s.callLarge(ctx, key, op, p)
	}
	return s.call(ctx, key, op, msg.Data)
}

// handle calls the handler. If a handler panics, only its own call fails.
func (s *server) handle(ctx context.Context, key tutti.NodeKey, op string, payload []byte) (answer []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.Logger.Error("a message of a node caused a panic", "key", key, "op", op, "panic", p, "stack", string(debug.Stack()))
			s.deny(key, "cause a panic in "+op)
			answer, err = nil, tutti.Errorf(tutti.CodeInternal, "%s: internal error of the server, see the server's log", op)
		}
	}()
	return s.Handler(ctx, key, op, payload)
}

func (s *server) call(ctx context.Context, key tutti.NodeKey, op string, payload []byte) *nats.Msg {
	answer, err := s.handle(ctx, key, op, payload)
	switch {
	case err != nil:
		return failure(err)
	case len(answer) <= chunkSize:
		return success(answer)
	case len(answer) > MaxPayload:
		return failure(tutti.Errorf(tutti.CodeInternal, "%s: the answer has %d bytes, at most %d", op, len(answer), MaxPayload))
	}
	p := parcel{id: nuid.Next(), digest: tutti.DigestOf(answer), size: int64(len(answer))}
	e, err := s.spool.open(key, p)
	if err == nil {
		err = e.fill(answer)
	}
	if err != nil {
		s.spool.drop(key, p.id)
		return failure(err)
	}
	msg := success(nil)
	p.mark(msg.Header)
	return msg
}

// callLarge calls the handler with a parcel that the node has already uploaded. The server keeps the parcel for some
// tries, because the node may have to repeat the call, for example with a newer ticket.
func (s *server) callLarge(ctx context.Context, key tutti.NodeKey, op string, p parcel) *nats.Msg {
	e := s.spool.find(key, p.id)
	if e == nil {
		return missing()
	}
	if e.parcel != p {
		return failure(tutti.Errorf(tutti.CodeInvalid, "content in chunks %s: the node announced this id before with another size or digest", p.id))
	}
	payload, err := e.content()
	if err != nil {
		s.spool.drop(key, p.id)
		return failure(err)
	}
	answer := s.call(ctx, key, op, payload)
	code := tutti.Code(answer.Header.Get(headerStatus))
	if again := code == tutti.CodeUnavailable || code == tutti.CodeDeadline; again && e.tried() < maxTries {
		return answer
	}
	s.spool.drop(key, p.id)
	return answer
}

func (s *server) put(key tutti.NodeKey, p parcel, msg *nats.Msg) *nats.Msg {
	if p.id == "" {
		return failure(tutti.Errorf(tutti.CodeInvalid, "content in chunks: the id is missing"))
	}
	offset, err := offsetOf(msg.Header)
	if err != nil {
		return failure(err)
	}
	e, err := s.spool.open(key, p)
	if err != nil {
		return failure(err)
	}
	if len(msg.Data) > 0 && !e.needs(offset, len(msg.Data)) {
		s.tooMuch(key, msg) // count a useless chunk; an honest node sends a useless chunk only after a lost connection
	}
	have, err := e.write(offset, msg.Data)
	killpoint.Here("natsbus.chunk")
	if err != nil {
		s.spool.drop(key, p.id)
		return failure(err)
	}
	answer := success(nil)
	setOffset(answer.Header, have)
	return answer
}

func (s *server) get(key tutti.NodeKey, p parcel, msg *nats.Msg) *nats.Msg {
	offset, err := offsetOf(msg.Header)
	if err != nil {
		return failure(err)
	}
	e := s.spool.find(key, p.id)
	if e == nil {
		return missing()
	}
	chunk, err := e.chunk(offset)
	if err != nil {
		return failure(err)
	}
	return success(chunk)
}

func missing() *nats.Msg {
	msg := success(nil)
	msg.Header.Set(headerStatus, statusMissing)
	return msg
}

func (s *server) answer(to, answer *nats.Msg) {
	if to.Reply == "" {
		return
	}
	answer.Subject = to.Reply
	if err := s.nc.PublishMsg(answer); err != nil {
		// The node waits for an answer until its deadline, and then calls again.
		s.Logger.Warn("an answer to a node was not sent", "error", err)
	}
}

// The method `enter` counts a call of a node. It returns false if the node already has too many calls.
// With this limit, there is always room for the waiting calls of other nodes.
func (s *server) enter(key tutti.NodeKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ofNode[key] >= concurrencyOfNode {
		return false
	}
	s.ofNode[key]++
	return true
}

func (s *server) leave(key tutti.NodeKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ofNode[key]--; s.ofNode[key] == 0 {
		delete(s.ofNode, key)
	}
}

// tooMuch counts a message that gets no answer, and reports whether its node is locked out.
func (s *server) tooMuch(key tutti.NodeKey, msg *nats.Msg) (out bool) {
	return s.Excess != nil && s.Excess(key, len(msg.Data))
}

func (s *server) deny(key tutti.NodeKey, what string) {
	if s.Denied != nil {
		s.Denied(key, what)
	}
}

// Ring rings the doorbell of a node. The doorbell gets lost if the node is not connected. The payload has at most
// MaxRing bytes.
func Ring(nc *nats.Conn, key tutti.NodeKey, op string, payload []byte) error {
	if err := key.Validate(); err != nil {
		return err
	}
	if err := validateOp(op); err != nil {
		return err
	}
	if len(payload) > MaxRing {
		return tutti.Errorf(tutti.CodeInvalid, "ring %s: %d bytes, at most %d", op, len(payload), MaxRing)
	}
	if err := nc.Publish("d."+string(key)+"."+op, payload); err != nil {
		return wrap(err, "ring "+op)
	}
	return nil
}

func flush(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := withTimeout(ctx, defaultTimeout)
	defer cancel()
	return nc.FlushWithContext(ctx)
}
