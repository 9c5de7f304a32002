package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// StoreAndFetch stores an object in the deployed Swift through its API, and then reads
// the object again. The proxy is the node whose name begins with proxy-.
func (f *LabFleet) StoreAndFetch(ctx context.Context, content []byte, say func(string, ...any)) error {
	h, err := f.node("proxy-")
	if err != nil {
		return err
	}
	proxy := "http://" + h.Address.String() + ":8080"
	ctx, cancel := context.WithTimeoutCause(ctx, swiftDeadline, fmt.Errorf("no answer of Swift within %s", swiftDeadline))
	defer cancel()
	auth, err := swift(ctx, http.MethodGet, proxy+"/auth/v1.0", http.Header{"X-Auth-User": {"test:tester"}, "X-Auth-Key": {"testing"}}, nil)
	if err != nil {
		return err
	}
	token := http.Header{"X-Auth-Token": {auth.header.Get("X-Auth-Token")}}
	const container, object = "/v1/AUTH_test/demo", "/v1/AUTH_test/demo/hello"
	if _, err := swift(ctx, http.MethodPut, proxy+container, token, nil); err != nil {
		return err
	}
	put, err := swift(ctx, http.MethodPut, proxy+object, token, content)
	if err != nil {
		return err
	}
	say("PUT %s%s: %s", proxy, object, put.status)
	get, err := swift(ctx, http.MethodGet, proxy+object, token, nil)
	if err != nil {
		return err
	}
	if !bytes.Equal(get.content, content) {
		return fmt.Errorf("GET %s returned %q, stored was %q", object, get.content, content)
	}
	say("GET %s%s: %s: %q", proxy, object, get.status, get.content)
	return nil
}

// swiftAnswer is an answer of Swift that was not an error.
type swiftAnswer struct {
	status  string
	header  http.Header
	content []byte
}

// systemd reports a unit of Swift as started before the unit's server listens. If a server does not
// answer, the proxy does not use this server for a minute.
const (
	swiftDeadline   = 2 * time.Minute
	swiftAgainEvery = 3 * time.Second
)

// The function `swift` sends a request to Swift. The function repeats the request while
// Swift answers that its servers are unavailable.
func swift(ctx context.Context, method, url string, header http.Header, body []byte) (swiftAnswer, error) {
	for {
		answer, code, err := askSwift(ctx, method, url, header, body)
		if code != http.StatusServiceUnavailable {
			return answer, err
		}
		if !sleep(ctx, swiftAgainEvery) {
			return answer, errors.Join(err, context.Cause(ctx))
		}
	}
}

func askSwift(ctx context.Context, method, url string, header http.Header, body []byte) (swiftAnswer, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return swiftAnswer{}, 0, err
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return swiftAnswer{}, 0, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, content)
	}
	return swiftAnswer{resp.Status, resp.Header, content}, resp.StatusCode, err
}
