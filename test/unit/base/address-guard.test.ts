import t from 'tap';
import { type AddressPolicy, AllowList, judgeAddress, judgeHost, NOTHING_ALLOWED, parseHost } from '../../../base/address-guard.ts';
import { kindOf, parseIp } from '../../../base/ip-address.ts';
import { SeededRandom } from '../../../base/random.ts';

const STRICT: AddressPolicy = { allow: NOTHING_ALLOWED, loopback: false, private: false };
const allowing = (...entries: string[]): AddressPolicy => ({ ...STRICT, allow: AllowList.parse(entries) as AllowList });
const host = (text: string) => {
  const parsed = parseHost(text);
  return parsed === null ? null : parsed.text;
};

t.test('a host has one form, however it is spelt', async (t) => {
  for (const spelling of [
    '127.0.0.1',
    '2130706433',
    '0x7f.1',
    '0x7F000001',
    '0177.0.0.1',
    '017700000001',
    '127.1',
    '127.0.1',
    '127.0.0.1.',
    '127。0。0。1',
    '１２７.0.0.1',
    '%31%32%37.0.0.1',
  ])
    t.equal(host(spelling), '127.0.0.1', spelling);
  t.equal(host('[::1]'), '::1');
  t.equal(host('API.Example.COM.'), 'api.example.com');
  t.equal(host('bücher.example'), 'xn--bcher-kva.example');
  for (const bad of [
    '',
    'a b',
    'a/b',
    '..',
    'a..b',
    '256.0.0.1',
    '1.2.3.4.5',
    '0xfffffffff',
    '[::1',
    '::1%eth0',
    '[fe80::1%25eth0]',
    'user@host',
    'host:80',
    'x'.repeat(300),
    'a\r\nb',
  ])
    t.equal(host(bad), null, bad);
});

t.test('an address is of the kind of the one that it carries', async (t) => {
  const kinds: Record<string, string[]> = {
    loopback: [
      '127.0.0.1',
      '127.255.255.255',
      '::1',
      '::ffff:127.0.0.1',
      '::ffff:7f00:1',
      '::127.0.0.1',
      '64:ff9b::7f00:1',
      '2002:7f00:1::',
      '2001:0:1:2:3:4:80ff:fffe',
      '::ffff:0:127.0.0.1',
      'fe80:0:0:1::5efe:7f00:1'.replace('fe80:0:0:1', '2600:0:0:1'),
    ],
    metadata: [
      '169.254.169.254',
      '::ffff:169.254.169.254',
      '::ffff:a9fe:a9fe',
      '64:ff9b::a9fe:a9fe',
      '2002:a9fe:a9fe::1',
      'fd00:ec2::254',
      '100.100.100.200',
      '169.254.170.2',
    ],
    'link-local': ['169.254.0.1', 'fe80::1', 'febf::1'],
    private: [
      '10.0.0.1',
      '172.16.0.1',
      '172.31.255.255',
      '192.168.1.1',
      '100.64.0.1',
      'fc00::1',
      'fdff::1',
      '::ffff:10.1.2.3',
      '198.18.0.1',
    ],
    unspecified: ['0.0.0.0', '0.1.2.3', '::', '::ffff:0.0.0.0'],
    multicast: ['224.0.0.1', '239.255.255.255', 'ff02::1'],
    broadcast: ['255.255.255.255'],
    reserved: ['240.0.0.1', '192.0.2.1', '203.0.113.9', '2001:db8::1', '4000::1', '100::1'],
    public: [
      '8.8.8.8',
      '172.15.255.255',
      '172.32.0.1',
      '192.167.255.255',
      '100.63.255.255',
      '100.128.0.1',
      '2001:4860:4860::8888',
      '2606:4700::1',
      '64:ff9b::808:808',
      '2002:808:808::1',
    ],
  };
  for (const [kind, addresses] of Object.entries(kinds))
    for (const address of addresses) t.equal(kindOf(parseIp(address) as number[]), kind, address);
  for (const bad of ['', '1.2.3', '01.2.3.4', '1.2.3.4/8', 'fe80::1%lo', '::g', 'x']) t.equal(parseIp(bad), null, bad);
});

t.test('bytes of an IPv6 address are those of its groups', async (t) => {
  const random = new SeededRandom(5);
  for (let i = 0; i < 2_000; i++) {
    const groups = Array.from({ length: 8 }, () => (random.next() < 0.5 ? 0 : Math.floor(random.next() * 65_536)));
    const bytes = groups.flatMap((group) => [group >> 8, group & 255]);
    const full = groups.map((group) => group.toString(16)).join(':');
    // the URL parser shortens it
    const short = new URL(`http://[${full}]/`).hostname.slice(1, -1);
    if (JSON.stringify(parseIp(full)) !== JSON.stringify(bytes) || JSON.stringify(parseIp(short)) !== JSON.stringify(bytes))
      t.fail(`${full} ${short}`);
  }
  t.same(parseIp('::ffff:1.2.3.4'), [...Array.from({ length: 10 }, () => 0), 255, 255, 1, 2, 3, 4]);
});

t.test('only public addresses are allowed, unless it is said otherwise', async (t) => {
  t.equal(judgeAddress('8.8.8.8', STRICT), null);
  for (const [address, words] of [
    ['127.0.0.1', /loopback address \(this machine\), which is not allowed here/],
    ['::ffff:a9fe:a9fe', /credentials of a machine/],
    ['10.0.0.1', /private address/],
    ['0.0.0.0', /no machine or for this one/],
    ['255.255.255.255', /broadcast/],
    ['224.0.0.1', /multicast/],
    ['240.0.0.1', /reserved/],
    ['fe80::1', /link-local/],
    ['nonsense', /is not an IP address/],
  ] as const)
    t.match(judgeAddress(address, STRICT), words);
  t.equal(judgeAddress('127.0.0.1', { ...STRICT, loopback: true }), null);
  t.equal(judgeAddress('::ffff:10.0.0.1', { ...STRICT, private: true }), null);
  t.match(judgeAddress('169.254.169.254', { ...STRICT, loopback: true, private: true }), /credentials/);
  t.match(judgeAddress('10.0.0.1', STRICT, 'evil.example'), /"evil\.example" leads to 10\.0\.0\.1, which is a private address/);
});

t.test('an allow list has addresses, networks and names', async (t) => {
  const policy = allowing('10.1.0.0/16', '192.168.7.7', 'fd00:1::/32', 'billing.internal', '*.corp.example', '127.0.0.1/32');
  for (const address of ['10.1.2.3', '192.168.7.7', 'fd00:1::5', '::ffff:10.1.2.3', '127.0.0.1'])
    t.equal(judgeAddress(address, policy), null, address);
  for (const address of ['10.2.0.1', '192.168.7.8', 'fd00:2::5', '127.0.0.2']) t.not(judgeAddress(address, policy), null, address);
  t.equal(judgeAddress('10.9.9.9', policy, 'billing.internal'), null);
  t.equal(judgeAddress('10.9.9.9', policy, 'a.b.corp.example'), null);
  t.not(judgeAddress('10.9.9.9', policy, 'corp.example'), null, 'the star stands for something');
  t.not(judgeAddress('10.9.9.9', policy, 'evilcorp.example'), null);
  t.match(judgeAddress('169.254.169.254', policy, 'billing.internal'), /credentials/, 'a name never opens the way to them');
  t.equal(judgeAddress('169.254.169.254', allowing('169.254.169.254')), null, 'their own address does');
  for (const bad of ['', '10.0.0.0/33', '10.0.0/8', 'a b', '*.10.0.0.1', '/8', 'host/8', '::1/129', '*'])
    t.match(AllowList.parse([bad]), { problem: /is not an address, a network or a host name/ }, bad);
});

t.test('names that mean this machine are judged without a resolver', async (t) => {
  for (const name of ['localhost', 'LocalHost.', 'api.localhost', 'ip6-localhost']) {
    const parsed = parseHost(name);
    t.match(parsed === null ? null : judgeHost(parsed, STRICT), /loopback/, name);
    t.equal(parsed === null ? '' : judgeHost(parsed, { ...STRICT, loopback: true }), null);
  }
  const other = parseHost('localhost.example.com');
  t.equal(other === null ? '' : judgeHost(other, STRICT), null);
  const open = { allow: AllowList.parse(['*.internal', 'metadata.google.internal']) as AllowList, loopback: true, private: true };
  for (const name of ['metadata.google.internal', 'METADATA.google.internal.', 'metadata', 'instance-data']) {
    const parsed = parseHost(name);
    t.match(parsed === null ? null : judgeHost(parsed, open), /credentials of a machine/, `${name}, though it is allowed`);
  }
});
