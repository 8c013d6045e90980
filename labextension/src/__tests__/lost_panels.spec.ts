import { Signal } from '@lumino/signaling';

import { LostPanels, PANEL_MIME } from '../plugins/lost_panels';

const WIDGET_MIME = 'application/vnd.jupyter.widget-view+json';

/** A notebook with a code cell for each output. */
class Notebook {
  constructor(
    public comms: string[] | null,
    ...outputs: object[]
  ) {
    for (const output of outputs) {
      this.show(output);
    }
  }

  node = document.createElement('div');
  widgets: any[] = [{ model: { type: 'markdown' } }];
  opened: any[] = [];
  asked = 0;
  status = 'idle';
  panel: any = {
    content: { node: this.node, widgets: this.widgets },
    disposed: new Signal<any, void>({}),
    sessionContext: {
      ready: Promise.resolve(),
      statusChanged: new Signal<any, string>({}),
      kernelChanged: new Signal<any, any>({}),
      connectionStatusChanged: new Signal<any, string>({}),
      session: { kernel: this.kernel() }
    }
  };

  show(data: object, trusted = true) {
    const place = document.createElement('div');
    place.className = 'jp-OutputArea-child';
    place.innerHTML =
      '<div class="jp-OutputArea-output">Loading widget...</div>';
    const model = { length: 1, get: () => ({ data, trusted }) };
    this.widgets.push({
      model: { type: 'code' },
      outputArea: { model, widgets: [{ node: place }] }
    });
    this.node.append(place);
  }

  become(status: string) {
    this.status = status;
    this.panel.sessionContext.statusChanged.emit(status);
  }

  kernel() {
    const requestCommInfo = async () => {
      this.asked += 1;
      if (this.comms === null) {
        throw new Error('Canceled');
      }
      const comms = Object.fromEntries(this.comms.map(id => [id, {}]));
      return { content: { status: 'ok', comms } };
    };
    const status = () => this.status;
    return {
      requestCommInfo,
      get status() {
        return status();
      }
    };
  }

  watch() {
    const { opened } = this;
    new LostPanels(this.panel, async cell => void opened.push(cell));
    return settled();
  }

  get notes() {
    return [...this.node.querySelectorAll('.mnt-lost-panel')];
  }
}

const panel = (id: string) => ({
  [PANEL_MIME]: {},
  [WIDGET_MIME]: { model_id: id }
});

const settled = () => new Promise(resolve => setTimeout(resolve));

it('a panel that its kernel still has is left alone, and so are other widgets', async () => {
  const other = { [WIDGET_MIME]: { model_id: 'gone' } };
  const notebook = new Notebook(['a'], panel('a'), other, { 'text/plain': '' });
  await notebook.watch();
  expect(notebook.asked).toBe(1);
  expect(notebook.notes).toEqual([]);
  expect(notebook.node.querySelector('.mnt-unknown')).toBeNull();
});

it('a restart of the kernel loses the panels that are drawn, and not those of later', async () => {
  const notebook = new Notebook(['a'], panel('a'));
  await notebook.watch();
  notebook.become('restarting');
  expect(notebook.notes).toHaveLength(1);
  expect(notebook.notes[0].textContent).toContain('ended with its kernel');
  notebook.become('idle');
  notebook.comms = ['b'];
  notebook.show(panel('b'));
  await settled();
  expect(notebook.notes).toHaveLength(1);
});

it('a saved panel whose widget no kernel has is lost, in a new kernel and without one', async () => {
  const notebook = new Notebook([], panel('a'));
  await notebook.watch();
  expect(notebook.notes).toHaveLength(1);
  const without = new Notebook([], panel('a'));
  without.panel.sessionContext.session = null;
  await without.watch();
  expect(without.notes).toHaveLength(1);
});

it('a kernel that was restarted while the page was away is asked again', async () => {
  const notebook = new Notebook(['a'], panel('a'));
  await notebook.watch();
  notebook.comms = [];
  notebook.panel.sessionContext.connectionStatusChanged.emit('connected');
  await settled();
  expect(notebook.notes).toHaveLength(1);
});

it('a kernel that does not answer is believed, and asked at the next occasion', async () => {
  const notebook = new Notebook(null, panel('a'));
  await notebook.watch();
  expect(notebook.notes).toEqual([]);
  expect(notebook.asked).toBe(1);
  notebook.comms = [];
  notebook.panel.sessionContext.kernelChanged.emit({});
  await settled();
  expect(notebook.notes).toHaveLength(1);
});

it('the button runs the cell of its panel, once', async () => {
  const notebook = new Notebook([], panel('a'));
  await notebook.watch();
  const button = notebook.notes[0].querySelector('button')!;
  button.click();
  button.click();
  expect(button.getAttribute('aria-disabled')).toBe('true');
  expect(notebook.opened).toEqual([notebook.widgets[1]]);
  await settled();
  expect(button.hasAttribute('aria-disabled')).toBe(false);
});

it('a panel in a notebook of somebody else has no button', async () => {
  const notebook = new Notebook([]);
  notebook.show(panel('a'), false);
  await notebook.watch();
  expect(notebook.notes).toEqual([]);
});
