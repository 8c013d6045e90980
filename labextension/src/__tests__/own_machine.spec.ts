import { CommandRegistry } from '@lumino/commands';

import { addOwnMachineCommands } from '../plugins/commands/own_machine';
import { CommandIDs, type IClusterModel } from '../tokens';

interface IAsked {
  made: number;
  tokens: string[];
  services: number;
}

function setUp(): { commands: CommandRegistry; asked: IAsked } {
  const asked: IAsked = { made: 0, tokens: [], services: 0 };
  const changed = { role: 'node', name: 'own', cluster: 'lab' };
  const model = {
    status: { cluster: 'lab' },
    api: {
      makeNode: async () => {
        asked.made += 1;
        return changed;
      },
      joinCluster: async (token: string) => {
        asked.tokens.push(token);
        return changed;
      },
      installService: async () => {
        asked.services += 1;
        return { role: 'node', said: ['wrote it'] };
      }
    }
  } as unknown as IClusterModel;
  const commands = new CommandRegistry();
  addOwnMachineCommands({ commands, model });
  return { commands, asked };
}

/** The dialog's button, once the dialog is there. */
async function button(how: 'accept' | 'reject'): Promise<HTMLButtonElement> {
  for (;;) {
    const found = document.querySelector<HTMLButtonElement>(
      `.jp-Dialog .jp-mod-${how}`
    );
    if (found) {
      return found;
    }
    await new Promise(resolve => requestAnimationFrame(resolve));
  }
}

describe('commands for the own machine', () => {
  it.each([CommandIDs.makeNode, CommandIDs.installService])(
    '%s changes nothing before it is confirmed',
    async id => {
      const { commands, asked } = setUp();
      const refused = commands.execute(id);
      (await button('reject')).click();
      await refused;
      expect(asked.made + asked.services).toBe(0);
      const accepted = commands.execute(id);
      (await button('accept')).click();
      await accepted;
      expect(asked.made + asked.services).toBe(1);
    }
  );

  it('joins with the pasted token, hidden and without blanks', async () => {
    const { commands, asked } = setUp();
    const joined = commands.execute(CommandIDs.joinCluster);
    const accept = await button('accept');
    const input = document.querySelector<HTMLInputElement>('.jp-Dialog input')!;
    expect(input.type).toBe('password');
    input.value = ' mntrain-abc\n';
    accept.click();
    await joined;
    expect(asked.tokens).toEqual(['mntrain-abc']);
  });
});
