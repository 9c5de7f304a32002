package outward

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/report/convert"
)

const (
	maxAnswer = 64 << 10 // bytes of an answer
	maxSecret = 1 << 20  // bytes of a key, a certificate or a token
	maxReason = 500      // bytes of a reason
)

// The function `reason` makes the text of an error safe for one line of a terminal.
func reason(text string) string { return tutti.InLine(tutti.Plain(text, maxReason)) }

// refused is an answer about one report. Sending the report again does not help.
type refused struct{ error }

// client sends requests to a destination. It reads keys and token once.
type client struct {
	Destination
	http  *http.Client
	token string
}

func newClient(d Destination) (*client, error) {
	c := &client{Destination: d}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.Files.CA != "" {
		raw, err := readFile(d.Files.CA, false)
		if err != nil {
			return nil, err
		}
		if conf.RootCAs = x509.NewCertPool(); !conf.RootCAs.AppendCertsFromPEM(raw) {
			return nil, tutti.Errorf(tutti.CodeInvalid, "%s has no certificate in PEM", d.Files.CA)
		}
	}
	if d.Files.Key != "" {
		cert, err := readFile(d.Files.Certificate, false)
		if err != nil {
			return nil, err
		}
		key, err := readFile(d.Files.Key, true)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, tutti.Wrap(tutti.CodeInvalid, err, "%s and %s", d.Files.Certificate, d.Files.Key)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	if d.Files.Token != "" {
		raw, err := readFile(d.Files.Token, true)
		if err != nil {
			return nil, err
		}
		if c.token = strings.TrimSpace(string(raw)); c.token == "" || strings.ContainsAny(c.token, "\r\n") {
			return nil, tutti.Errorf(tutti.CodeInvalid, "%s must have one line with the token", d.Files.Token)
		}
	}
	// Proxy is nil: the environment of the server does not decide where reports go.
	c.http = &http.Client{
		Timeout:       d.Timeout,
		Transport:     &http.Transport{TLSClientConfig: conf, MaxConnsPerHost: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// readFile reads a small file. Others must not be able to read a secret.
func readFile(path string, secret bool) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxSecret:
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s is no file of at most %d bytes", path, maxSecret)
	case secret && info.Mode().Perm()&0o077 != 0:
		return nil, tutti.Errorf(tutti.CodeInvalid, "others may read %s: chmod go= %s", path, path)
	}
	return os.ReadFile(path)
}

// The method `close` ends the connections that are kept open.
func (c *client) close() { c.http.CloseIdleConnections() }

// The method `send` sends one report. If the error is of the type refused, sending this report again does not help.
func (c *client) send(ctx context.Context, e past.Ended, raw []byte, producer string) error {
	of := convert.Of{Node: e.Node, At: e.At, Producer: producer}
	var body []byte
	var err error
	target, kind, accepted := *c.URL, "application/json; charset=utf-8", func([]byte) error { return nil }
	switch {
	case c.Kind == PuppetDB:
		command, version := "store_report", "8"
		if e.Facts != "" {
			command, version = "replace_facts", "5"
			body, err = convert.PuppetDBFacts(raw, e.Environment, of)
		} else {
			body, err = convert.PuppetDB(raw, of)
		}
		target = *c.URL.JoinPath("pdb/cmd/v1")
		target.RawQuery = url.Values{
			"command": {command}, "version": {version}, "certname": {string(e.Node)}, "producer-timestamp": {e.At.UTC().Format("2006-01-02T15:04:05.000Z")},
		}.Encode()
		accepted = queued
	case c.Kind == Foreman:
		body, err = convert.Foreman(raw, of)
		target = *c.URL.JoinPath("api/config_reports")
		accepted = stored
	case c.Format == formatJSON:
		body, err = convert.JSON(raw, of)
	default:
		body, err = convert.YAML(raw, of)
		kind = "application/x-yaml"
	}
	if err != nil {
		return refused{err}
	}
	return c.post(ctx, &target, kind, body, accepted)
}

func (c *client) post(ctx context.Context, target *url.URL, kind string, body []byte, accepted func([]byte) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Accept", "application/json")
	if c.Kind == Foreman {
		req.Header.Set("Accept", "application/json,version=2")
	}
	status, location, answer, err := c.do(req)
	if err != nil {
		return err
	}
	said := func(why string) error {
		text := reason(strings.TrimSpace(string(answer)))
		if text != "" {
			text = ": " + text
		}
		return tutti.Errorf(tutti.CodeUnavailable, "%d %s%s%s", status, http.StatusText(status), why, text)
	}
	switch {
	case status >= 200 && status < 300:
		if err := accepted(answer); err != nil {
			return said(", but " + err.Error())
		}
		return nil
	case status >= 300 && status < 400:
		return said(fmt.Sprintf(", a redirect to %s: no redirect is followed; write the right address into %s", location, ConfigFile))
	case status >= 400 && status < 500 && !configured(status):
		return refused{said("")}
	}
	return said("")
}

// The function `configured` reports whether a status is about the address, the credentials or the load, and not about
// the report.
func configured(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}

// The method `do` sends a request and reads the beginning of the answer.
func (c *client) do(req *http.Request) (status int, location string, answer []byte, err error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var with *url.Error
		if errors.As(err, &with) {
			err = with.Err // the address may have a secret in its query
		}
		return 0, "", nil, tutti.Wrap(tutti.CodeUnavailable, err, "%s", req.URL.Host)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if c.token != "" { // the answer may repeat the request
		answer = bytes.ReplaceAll(answer, []byte(c.token), []byte("[token]"))
	}
	if taken := c.Kind == HTTP && resp.StatusCode/100 == 2; err != nil && !taken { // an endpoint takes a report by its status
		return 0, "", nil, tutti.Wrap(tutti.CodeUnavailable, err, "%s: the answer", req.URL.Host)
	}
	if to, err := resp.Location(); err == nil {
		location = tutti.Plain(to.Scheme+"://"+to.Host, maxReason)
	}
	return resp.StatusCode, location, answer, nil
}

// The function `queued` checks the answer of PuppetDB. PuppetDB has stored the command on disk before it answers.
func queued(answer []byte) error {
	var said struct {
		UUID string `json:"uuid"`
	}
	if json.Unmarshal(answer, &said) != nil || said.UUID == "" {
		return errors.New("this is not an answer of PuppetDB")
	}
	return nil
}

// The function `stored` checks the answer of Foreman. The answer repeats the report, so `do` may have cut it off.
func stored(answer []byte) error {
	if len(answer) >= maxAnswer && bytes.HasPrefix(answer, []byte("{")) {
		return nil
	}
	var said map[string]json.RawMessage
	if json.Unmarshal(answer, &said) != nil || said["error"] != nil {
		return errors.New("this is not an answer of Foreman about a stored report")
	}
	return nil
}

// Check connects to a destination without sending a report. The text says what the check has proved.
func Check(ctx context.Context, d Destination) (string, error) {
	c, err := newClient(d)
	if err != nil {
		return "", err
	}
	defer c.close()
	method, target := http.MethodHead, *c.URL
	if c.Kind == PuppetDB {
		method, target = http.MethodGet, *c.URL.JoinPath("pdb/meta/v1/version")
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return "", err
	}
	status, _, answer, err := c.do(req)
	switch {
	case err != nil:
		return "", err
	case c.Kind != PuppetDB:
		return fmt.Sprintf("connected (HEAD: %d %s); whether it accepts reports shows with the first one", status, http.StatusText(status)), nil
	case status != http.StatusOK:
		return "", tutti.Errorf(tutti.CodeUnavailable, "%d %s: %s", status, http.StatusText(status), reason(string(answer)))
	}
	var said struct {
		Version string `json:"version"`
	}
	if json.Unmarshal(answer, &said) != nil || said.Version == "" {
		return "", tutti.Errorf(tutti.CodeUnavailable, "the answer is not one of PuppetDB")
	}
	return "connected, PuppetDB " + tutti.Plain(said.Version, 40), nil
}
