// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

func (h *hub) uid(ctx context.Context, name string) types.UID {
	job := stage.NewTrainJob("vision", name)
	if err := h.Admin.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
		return ""
	}
	return job.UID
}

// pages are what each look is checked on: the address, and a text that the page has when it is complete.
var pages = []struct{ name, path, text string }{
	{"fleet", "fleet", "gpu-south"}, {"queue", "queue", "llama-pretrain"}, {"jobs", "jobs", "train-39"}, {"side", "jobs?namespace=vision&open=vision/crashes", "CrashLoop for"},
	{"job", "job?namespace=vision&name=crashes", "CrashLoop"}, {"whatif", "whatif?namespace=vision", "Not tried yet"}, {"empty", "jobs?namespace=none", "No jobs"},
}

func TestPages(t *testing.T) {
	h, b := open(t, "operator")
	for _, width := range []int64{390, 1440} {
		for _, theme := range []string{"light", "dark"} {
			b.look(t, width, theme)
			for _, page := range pages {
				name := fmt.Sprintf("%s-%d-%s", page.name, width, theme)
				b.visit(t, page.path, page.text)
				b.screenshot(t, h, name)
				b.inspect(t, name)
			}
			b.visit(t, "job?namespace=vision&name=crashes", "CrashLoop")
			for _, of := range []string{"Timeline", "Events", "Commands"} {
				b.tab(t, of)
				name := fmt.Sprintf("%s-%d-%s", strings.ToLower(of), width, theme)
				b.screenshot(t, h, name)
				b.inspect(t, name)
			}
		}
	}
	b.tab(t, "Logs")
	b.await(t, `cannot list resource "pods"`) // Operators may not read what jobs of others print.
	b.faultless(t)
}

// inspect checks what a screen reader and a narrow window need.
func (b *tab) inspect(t *testing.T, name string) {
	t.Helper()
	for _, fault := range evaluate[[]string](t, b, inspection) {
		t.Errorf("%s: %s", name, fault)
	}
}

// inspection returns what is wrong with a page: text without contrast, parts without a name, a page that is wider than the
// window. The contrast is that of WCAG 2.2, level AA.
const inspection = `(() => {
  const faults = [];
  const shown = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== 'hidden' && !e.closest('.hidden, .skip');
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const luminance = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || !shown(e) || e.closest('script, svg, option, [disabled]')) continue;
    const style = getComputedStyle(e), a = luminance(parse(style.color)), g = luminance(ground(e));
    const ratio = (Math.max(a, g) + 0.05) / (Math.min(a, g) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700;
    if (ratio < (large ? 3 : 4.5)) faults.push('contrast ' + ratio.toFixed(2) + ' of "' + node.data.trim().slice(0, 40) + '" in ' + e.tagName + '.' + e.className);
  }
  const nameOf = (e) => e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim() || e.title || [...(e.labels ?? [])].map((l) => l.textContent).join('');
  for (const e of document.querySelectorAll('a[href], button, input, select, textarea, [role="img"], nav, aside, [role="tabpanel"], [role="tablist"], [role="region"]')) if (shown(e) && !nameOf(e)) faults.push('no name: ' + e.outerHTML.slice(0, 120));
  for (const e of document.querySelectorAll('img')) if (!e.hasAttribute('alt')) faults.push('no alt: ' + e.src);
  for (const e of document.querySelectorAll('table')) if (shown(e) && !e.querySelector('th[scope]')) faults.push('a table without headings');
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push('two elements are ' + id);
  for (const e of document.querySelectorAll('[aria-labelledby]')) if (!document.getElementById(e.getAttribute('aria-labelledby'))) faults.push('nothing labels ' + e.tagName);
  for (const tag of ['main', 'nav', 'header']) if (!document.querySelector(tag)) faults.push('no ' + tag);
  if (document.querySelectorAll('main h1').length !== 1) faults.push(document.querySelectorAll('main h1').length + ' headings of the page');
  if (!document.documentElement.lang) faults.push('no language');
  const root = document.scrollingElement;
  if (root.scrollWidth > innerWidth) faults.push('the page is ' + root.scrollWidth + ' wide, and the window ' + innerWidth);
  return faults;
})()`

// TestCardTurns: what happens to a worker is on its card within two seconds.
func TestCardTurns(t *testing.T) {
	h, b := open(t, "operator")
	b.visit(t, "fleet", "Live")
	pill := `document.querySelector('[aria-labelledby="worker-gpu-east"] .pill').innerText`
	for _, turn := range []struct {
		status metav1.ConditionStatus
		reason string
		want   string
	}{{metav1.ConditionFalse, "Unreachable", "Unreachable"}, {metav1.ConditionTrue, "Connected", "Ready"}} {
		worker := &v1alpha1.WorkerCluster{}
		check.Must(t, h.Admin.Get(t.Context(), types.NamespacedName{Name: "gpu-east"}, worker))
		meta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{Type: v1alpha1.WorkerClusterReady, Status: turn.status, Reason: turn.reason, Message: "as the test says"})
		began := time.Now()
		check.Must(t, h.Admin.Status().Update(t.Context(), worker))
		b.until(t, pill+fmt.Sprintf(`.includes(%q)`, turn.want))
		took := time.Since(began)
		t.Logf("the card says %s after %s", turn.want, took)
		if took > 2*time.Second {
			t.Errorf("the card says %s only after %s", turn.want, took)
		}
	}
	b.faultless(t)
}

// TestMarkup: words of workers, refusals and Events with markup are text on each page.
func TestMarkup(t *testing.T) {
	_, b := open(t, "operator")
	for _, page := range []string{"fleet", "queue", "job?namespace=vision&name=crashes", "job?namespace=vision&name=wrong-runtime"} {
		b.visit(t, page, markup)
	}
	b.visit(t, "job?namespace=vision&name=crashes", "CrashLoop")
	b.tab(t, "Events")
	b.await(t, "worker gpu-west refuses: "+markup)
	check.Equal(t, false, evaluate[bool](t, b, `window.hacked !== undefined || document.querySelector('main img, main script') !== null`), "markup became elements")
	// The policy stops what the page's code does not do.
	stopped := evaluate[string](t, b, `(() => { try { document.body.innerHTML = '<b>x</b>'; return 'nothing'; } catch (e) { return e.name; } })()`)
	check.Equal(t, "TypeError", stopped, "what setting innerHTML does")
}

// TestNamespacedUser: who may see one namespace sees it, and reads what is lacking for the rest.
func TestNamespacedUser(t *testing.T) {
	h, b := open(t, "researcher")
	b.look(t, 1440, "light")
	b.visit(t, "fleet", "workerclusters.trainyard.dev: list, watch")
	b.await(t, "trainyard-operator")
	b.screenshot(t, h, "namespaced-fleet")
	b.inspect(t, "namespaced-fleet")
	b.visit(t, "jobs", "crashes")
	text := b.text()
	if strings.Contains(text, "language") || !strings.Contains(text, "train-00") {
		t.Errorf("the page of jobs says:\n%s", text)
	}
	b.visit(t, "queue", "Positions are not known")
	b.visit(t, "job?namespace=vision&name=crashes", "CrashLoop")
	b.tab(t, "Events")
	b.await(t, "Events are not shown")
	b.visit(t, "whatif", "Not tried yet")
	b.click(t, `button[type="submit"]`)
	b.await(t, "workerclusters.trainyard.dev is forbidden")
	b.screenshot(t, h, "namespaced-whatif")
	b.faultless(t)
}

// TestWhatIf: a pasted job is decided on, and a fault in it is named.
func TestWhatIf(t *testing.T) {
	h, b := open(t, "operator")
	check.Must(t, h.InstallRuntime(t.Context()))
	b.look(t, 1440, "dark")
	b.visit(t, "whatif?namespace=vision", "Not tried yet")
	b.click(t, `button[type="submit"]`)
	b.await(t, "would run on worker gpu-")
	b.screenshot(t, h, "whatif-result")
	b.inspect(t, "whatif-result")
	b.run(t, chromedp.SetValue(chromedp.CSS(`#manifest`), "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec: {trainer: {numNode: 1}}"))
	b.click(t, `button[type="submit"]`)
	b.await(t, `unknown field "spec.trainer.numNode"`)
	b.faultless(t)
}

// TestKeyboard: the board can be used without a mouse.
func TestKeyboard(t *testing.T) {
	_, b := open(t, "operator")
	b.visit(t, "jobs?namespace=vision", "crashes")
	focus := func() string {
		return evaluate[string](t, b, `document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || document.activeElement.tagName`)
	}
	b.press(t, kb.Tab)
	check.Equal(t, "Skip to the page", focus(), "first stop")
	b.run(t, chromedp.Focus(chromedp.CSS(`[data-focus="vision/crashes"]`)))
	b.press(t, kb.Enter)
	b.await(t, "Open as a page")
	check.Equal(t, "Job crashes", focus(), "focus after a job was opened")
	b.await(t, "CrashLoop for")
	b.run(t, chromedp.Focus(chromedp.CSS(`[role="tab"]`)))
	b.press(t, kb.ArrowRight)
	check.Equal(t, "Timeline", focus(), "tab after the arrow")
	b.press(t, kb.Escape)
	b.until(t, `document.querySelector('aside') === null`)
	check.Equal(t, "crashes", focus(), "focus after the job was closed")
	b.click(t, `#theme`)
	check.Equal(t, "light", evaluate[string](t, b, `document.documentElement.dataset.theme`), "theme after the switch")
	b.faultless(t)
}

// tab chooses what is shown of a job.
func (b *tab) tab(t *testing.T, name string) {
	t.Helper()
	b.until(t, fmt.Sprintf(`(() => { const tab = [...document.querySelectorAll('[role="tab"]')].find((e) => e.textContent === %q); tab?.click(); return tab?.ariaSelected === 'true'; })()`, name))
}
