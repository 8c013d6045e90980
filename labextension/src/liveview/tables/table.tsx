/** Plain table with a caption. */

import * as React from 'react';

export function Table(props: {
  caption: string;
  columns: string[];
  children: React.ReactNode;
}): JSX.Element {
  return (
    <table>
      <caption>{props.caption}</caption>
      <thead>
        <tr>
          {props.columns.map((name, i) => (
            <th key={i} scope="col">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{props.children}</tbody>
    </table>
  );
}
