// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

const patience = 90 * time.Second

var shared = stage.ShareWith(startHub)

// hub is an API server with the objects that the pages show. Nothing else writes there.
type hub struct {
	*stage.Server
	plugin string
	shots  string
}

func TestMain(m *testing.M) {
	if browser() == "" {
		fmt.Fprintln(os.Stderr, "no browser: install Chromium (Debian's package is chromium), or name a binary in $CHROMIUM")
		os.Exit(1)
	}
	stage.Main(m, shared)
}

// browser is the path of a Chromium, or "".
func browser() string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

func startHub(ctx context.Context, cleanup func(func() error)) (*hub, error) {
	ctx = context.WithoutCancel(ctx) // On a busy machine the linker needs more time than clusters may take to start.
	server, err := stage.StartServer(ctx, cleanup, clusters.Options{Name: "hub"}, clusters.HubCRDs)
	if err != nil {
		return nil, err
	}
	h := &hub{Server: server}
	if h.plugin, err = clusters.Build(ctx, "kubectl-trainyard"); err != nil {
		return nil, err
	}
	if h.shots, err = os.MkdirTemp("", "trainyard-board-"); err != nil {
		return nil, err
	}
	fmt.Println("screenshots are in", h.shots)
	if err := h.users(ctx); err != nil {
		return nil, err
	}
	return h, h.objects(ctx)
}

// users makes an operator of the fleet, and a user of the namespace vision.
func (h *hub) users(ctx context.Context) error {
	roles, err := filepath.Abs("../../config/users")
	if err != nil {
		return err
	}
	if err := h.Cluster.ApplyKustomization(ctx, roles); err != nil {
		return err
	}
	admin, err := kubernetes.NewForConfig(h.Cluster.Config)
	if err != nil {
		return err
	}
	for _, namespace := range []string{"vision", "language"} {
		if _, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, name := range []string{"operator", "researcher"} {
		if _, err := admin.CoreV1().ServiceAccounts("vision").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	subject := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "vision", Name: name}}
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Subjects: subject("operator"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "trainyard-operator"},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = admin.RbacV1().RoleBindings("vision").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "researcher"}, Subjects: subject("researcher"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "trainyard-view"},
	}, metav1.CreateOptions{})
	return err
}

// tab is a tab of a browser with the board of a user.
type tab struct {
	context.Context
	base string
	// faults are what the browser has complained about: exceptions, and what the policy has forbidden.
	faults chan string
}

// open starts the board for a user as the plugin does, and opens it.
func open(t *testing.T, user string) (*hub, *tab) {
	t.Helper()
	h := shared.Get(t)
	kubeconfig, err := h.AccountKubeconfig(t.Context(), "vision", user)
	check.Must(t, err)
	return h, openWith(t, h.plugin, kubeconfig, "vision")
}

// openWith starts the board with a kubeconfig, and opens it.
func openWith(t *testing.T, path, kubeconfig, namespace string) *tab {
	t.Helper()
	plugin := exec.CommandContext(t.Context(), path, "board", "--open=false", "--namespace="+namespace, "--kubeconfig="+kubeconfig)
	out, err := plugin.StdoutPipe()
	check.Must(t, err)
	plugin.Stderr = os.Stderr
	check.Must(t, plugin.Start())
	t.Cleanup(func() { _ = plugin.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	check.Must(t, err)
	address := regexp.MustCompile(`http://127\.0\.0\.1:\S+`).FindString(line)
	if address == "" {
		t.Fatalf("the plugin prints %q", line)
	}
	// The sandbox of Chromium needs a user of its own. What is opened is the test's own.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser()), chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{Context: ctx, faults: make(chan string, 100)}
	check.Must(t, chromedp.Listen(ctx, b.listen))
	_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	check.Must(t, err)
	b.run(t, chromedp.Navigate(address))
	b.until(t, `document.querySelector('#main h1') !== null`)
	b.base = evaluate[string](t, b, `new URL('.', location.href).href`)
	return b
}

// listen keeps what the browser complains about.
func (b *tab) listen(event any) {
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		b.complain(event.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		// What the server refuses is on the page, and in the log of the browser as an error of the network.
		if event.Entry.Level == log.EntryLevelError && event.Entry.Source != log.EntrySourceNetwork {
			b.complain(event.Entry.Text)
		}
	}
}

func (b *tab) complain(text string) {
	select {
	case b.faults <- text:
	default: // There are many already.
	}
}

func (b *tab) run(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatalf("%v; the page says:\n%s", err, b.text())
	}
}

// text is what the page says, for messages.
func (b *tab) text() string {
	text, _ := chromedp.Run(b, chromedp.Evaluate[string](`document.body.innerText`))
	return text
}

func evaluate[T any](t *testing.T, b *tab, script string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		t.Fatalf("%s: %v; the page says:\n%s", script, err, b.text())
	}
	return value
}

// until waits until an expression is true. The page's policy forbids what chromedp itself would poll with. An error is
// none as long as there is time: the page may be going.
func (b *tab) until(t *testing.T, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		if is && err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it never is true that %s (%v); the page says:\n%s", expression, err, b.text())
		}
	}
}

// visit opens a page, and waits until it has a text.
func (b *tab) visit(t *testing.T, path, text string) {
	t.Helper()
	b.run(t, chromedp.Navigate(b.base+path))
	b.await(t, text)
}

// await waits until the page has a text.
func (b *tab) await(t *testing.T, text string) {
	t.Helper()
	b.until(t, fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}

// click clicks on the first element of a selector, and press presses a key.
func (b *tab) click(t *testing.T, selector string) {
	t.Helper()
	b.run(t, chromedp.Click(chromedp.CSS(selector)))
}

func (b *tab) press(t *testing.T, key string) {
	t.Helper()
	b.run(t, chromedp.KeyEvent(key))
}

// look sets the size of the window and the colours of the system.
func (b *tab) look(t *testing.T, width int64, theme string) {
	t.Helper()
	b.run(t, chromedp.EmulateViewport(width, 900))
	_, err := chromedp.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
	check.Must(t, err)
}

func (b *tab) screenshot(t *testing.T, h *hub, name string) {
	t.Helper()
	picture, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	check.Must(t, err)
	check.Must(t, os.WriteFile(filepath.Join(h.shots, name+".png"), picture, 0o600))
}

// faultless fails if the browser has complained.
func (b *tab) faultless(t *testing.T) {
	t.Helper()
	for {
		select {
		case fault := <-b.faults:
			t.Errorf("the browser says: %s", fault)
		default:
			return
		}
	}
}
