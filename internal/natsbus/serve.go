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

// Handler answers one call of a node. Many goroutines call it at once. Calls of one node may overtake each other and
// come twice. An error reaches the node with its code and text. The answer to a message (Conn.Send) is dropped. The
// context ends when the node no longer waits, or the server stops. It has the call's tutti.Turn, except for operations
// in Light.
type Handler func(ctx context.Context, from tutti.NodeKey, op string, payload []byte) ([]byte, error)

// ServeOptions say how to serve nodes.
type ServeOptions struct {
	Handler  Handler
	SpoolDir string // content above 128 KiB passes through here; emptied at start and end
	// Ready is called when calls of nodes begin to arrive. May be nil.
	Ready func()
	// Denied is called each time a node tries something that it may not do. It must not block. May be nil.
	Denied func(from tutti.NodeKey, what string)
	// Excess is called for each message beyond what its node may have at work, with the message's bytes. If it returns out,
	// the message is not answered. It must not block. May be nil.
	Excess func(from tutti.NodeKey, bytes int) (out bool)
	Logger *slog.Logger // may be nil
	// Concurrency is how many handlers run at once; 0 means 64.
	Concurrency int
	// Light operations do not wait for others: they only report something, and their handlers are quick. One node has
	// one of them at work. Others that arrive in that time are dropped.
	Light []string
}

const (
	concurrency       = 64
	concurrencyOfNode = 16
	// concurrencyLarge bounds the memory for content in chunks.
	concurrencyLarge = 4
	// maxTries is how often a call with content in chunks is tried. After that, the node must send the content again.
	maxTries         = 8
	concurrencyLight = 16
	// againPause is the delay of an answer that tells the node to ask again.
	againPause = 250 * time.Millisecond
)

// server is the state of one Serve.
type server struct {
	ServeOptions
	nc      *nats.Conn
	spool   *spool
	turns   *turns
	large   *turns // for calls whose content came in chunks; they do not hold up other calls
	light   chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	ofNode  map[tutti.NodeKey]int  // calls that wait or are at work
	telling map[tutti.NodeKey]bool // nodes with a light call at work
}

// Serve answers nodes on nc, the server's connection to the account of the nodes, until ctx ends. It returns after the
// last handler. It answers only calls whose reply address is in the inbox of their own sender.
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

// receive passes messages on until ctx ends.
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

// acceptLight handles an operation of Light, without waiting for other calls.
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
		_, _ = s.handle(ctx, key, op, msg.Data) // no answer is expected
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

// accept checks a message, and starts its handler when it is its node's turn.
func (s *server) accept(ctx context.Context, msg *nats.Msg) {
	key, op, ok := senderOf(msg.Subject)
	switch {
	case ok && msg.Reply == "" && slices.Contains(s.Light, op):
		return // acceptLight gets it, too
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
			defer turn.End() // a second one does nothing
			var answer *nats.Msg
			if ctx.Err() == nil { // else the node no longer waits
				answer = s.dispatch(ctx, key, op, msg)
			}
			turn.End() // the large part of the answer is in the spool
			if answer != nil {
				s.hold(ctx, answer)
				s.answer(msg, answer)
			}
		})
	})
}

// turnsOf are the turns for which a call waits.
func (s *server) turnsOf(op string, header nats.Header) *turns {
	if header.Get(headerParcel) == "" || op == opPut || op == opGet || op == opDone {
		return s.turns
	}
	return s.large
}

// hold delays an answer that tells the node to ask again, so that a node that does so at once does not keep the server
// busy. The delay holds one of the node's calls, and no handler.
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

// handle calls the handler. A panic fails this call only.
func (s *server) handle(ctx context.Context, key tutti.NodeKey, op string, payload []byte) (answer []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.Logger.Error("a message of a node caused a panic", "key", key, "op", op, "panic", p, "stack", string(debug.Stack()))
			s.deny(key, "cause a panic in "+op)
			answer, err = nil, tutti.Errorf(tutti.CodeInternal, "%s: a mistake of the server, see its log", op)
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

// callLarge calls the handler with a parcel that was put before. The parcel stays for some tries if the node has to ask
// again, for example with a newer ticket.
func (s *server) callLarge(ctx context.Context, key tutti.NodeKey, op string, p parcel) *nats.Msg {
	e := s.spool.find(key, p.id)
	if e == nil {
		return missing()
	}
	if e.parcel != p {
		return failure(tutti.Errorf(tutti.CodeInvalid, "content in chunks %s: announced before as something else", p.id))
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
		return failure(tutti.Errorf(tutti.CodeInvalid, "content in chunks: no id"))
	}
	offset, err := offsetOf(msg.Header)
	if err != nil {
		return failure(err)
	}
	e, err := s.spool.open(key, p)
	if err != nil {
		return failure(err)
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
		// The node runs into its deadline and asks again.
		s.Logger.Warn("an answer to a node was not sent", "error", err)
	}
}

// enter counts a call of a node. One node cannot take the room of all waiting calls.
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

// tooMuch notes a message that will not be answered, and reports whether its node is out.
func (s *server) tooMuch(key tutti.NodeKey, msg *nats.Msg) (out bool) {
	return s.Excess != nil && s.Excess(key, len(msg.Data))
}

func (s *server) deny(key tutti.NodeKey, what string) {
	if s.Denied != nil {
		s.Denied(key, what)
	}
}

// Ring rings the doorbell of a node. It is lost if the node is not connected. It has at most MaxRing bytes.
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
